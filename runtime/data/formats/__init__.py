"""Data files of many formats, read in place: nothing has to be converted for training.

format = table.detect(path)                       # by content, else by name
for span in format.index(path, CHUNK_BYTES): ...  # offset, length, records, digest
for record in format.read(path, span): ...        # what one record is depends on the format
"""
