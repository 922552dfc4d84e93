"""So that `python -m fleetstop` works."""

from fleetstop.cli import main

if __name__ == "__main__":
    main()
