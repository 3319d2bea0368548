"""``python -m bkctl``."""

from bkctl.cli import main

if __name__ == "__main__":
    main()
