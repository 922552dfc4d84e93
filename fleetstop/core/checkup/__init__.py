"""What `doctor` looks at and how it judges it; looks at nothing itself."""
