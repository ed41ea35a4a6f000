"""The tests of rater."""

import os
import sys

# Every rater that a test starts would compile rater again, and every worker each assertion.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
