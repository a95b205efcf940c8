"""`python -m perdure`."""

import sys

from perdure.surfaces.cli import main

if __name__ == "__main__":
    sys.exit(main())
