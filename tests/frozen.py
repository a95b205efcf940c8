"""Imported last by the process that warm commands are forked from. Excludes its modules from garbage collection."""

import gc

gc.collect()
gc.freeze()
