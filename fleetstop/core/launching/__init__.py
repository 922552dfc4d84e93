"""What is started anew, as whom and how, and whether that arrived; starts nothing itself."""
