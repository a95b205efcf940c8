"""The files of the page, shipped in the wheel."""
