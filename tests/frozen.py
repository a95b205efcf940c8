"""Imported last by the process that warm commands are forked from: they don't look through its modules for garbage."""

import gc

gc.collect()
gc.freeze()
