"""`python -m rater`."""

import sys

from rater.cli import main

if __name__ == "__main__":
    sys.exit(main())
