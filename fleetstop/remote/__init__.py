"""What reaches other machines: SSH, the shells and probes on it; knows no action and no screen."""
