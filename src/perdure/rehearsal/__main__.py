"""`python -m perdure.rehearsal`."""

import sys

from perdure.rehearsal import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
