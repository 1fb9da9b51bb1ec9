"""Training data: RecordIO files, typed records, datasets by name.

info = catalogue.find("public/digits")
x, y = catalogue.load(info, "test")
for features, label in catalogue.read_chunk(catalogue.chunks(info, "train")[0]): ...
"""
