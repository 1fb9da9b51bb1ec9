"""RecordIO: records packed into chunks that can be read on their own.

  with open("train.recordio", "wb") as file, Writer(file, compressor="snappy") as writer:
      writer.write(b"one")
  with Reader("train.recordio") as reader:
      print(len(reader), reader.chunks)
      for record in reader: ...                   # bytes; reader.views() returns memoryviews, without a copy

A file is chunks back to back, without header or footer. An empty file is valid, and so is an empty record. Records are
plain bytes, whose meaning is up to the reader (``runtime.data.record_codec``, ``runtime.data.value_codec``).
"""

from runtime.data.recordio.chunks import decode_chunk, encode_chunk
from runtime.data.recordio.header import COMPRESSORS, GZIP, MAGIC, NONE, SNAPPY, Header, RecordIOError
from runtime.data.recordio.index import Damage, scan
from runtime.data.recordio.reader import Reader, read
from runtime.data.recordio.writer import Writer
from runtime.data.span import Span

__all__ = [
    "COMPRESSORS",
    "GZIP",
    "MAGIC",
    "NONE",
    "SNAPPY",
    "Damage",
    "Header",
    "Reader",
    "RecordIOError",
    "Span",
    "Writer",
    "decode_chunk",
    "encode_chunk",
    "read",
    "scan",
]
