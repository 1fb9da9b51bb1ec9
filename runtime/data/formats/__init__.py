"""Data files of many formats, read in place: training needs no conversion.

format = registry.detect(path)                    # by content, else by name
for span in format.index(path, CHUNK_BYTES): ...  # offset, length, records, digest
for record in format.read(path, span): ...        # what one record is depends on the format
"""
