"""Stop GPU training jobs in Proxmox LXC containers, gently and provably."""

__version__ = "0.1.0"
