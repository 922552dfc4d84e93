"""What runs leave behind: one file each. Listens to events; knows no screen and no host."""
