"""Messages of data formats and readers."""

from runtime.messages import Template as _
from runtime.messages import register

AVAILABLE_NAMES = _("Available: {names}.")
NONE_INSTALLED = _("None is installed.")
DATASET_FILE_UNREADABLE = _("{path} cannot be read ({error}). Upload the dataset again.")
DATASET_DESCRIPTION_INVALID = _("{path} is not a valid dataset description ({error}). Upload it again.")
CHUNK_TOO_SHORT = _("A chunk must have at least {least} bytes; this one has {count}.")
CHUNK_SIZE_MISMATCH = _("The chunk header declares {announced} bytes, but the chunk has {count}.")
CHUNK_CHECKSUM_MISMATCH = _("The chunk is damaged: its checksum does not match. Restore the file from its source.")
CHUNK_TRUNCATED_SINCE_INDEXED = _("{path} ends inside the chunk at {offset}; it was truncated after it was indexed.")
CHUNK_HEADER_TRUNCATED = _("{where}: the file ends inside a chunk header. It was truncated; copy it again.")
CHUNK_TRUNCATED = _("{where}: the file ends inside this chunk. It was truncated; copy it again.")
CHUNK_UNPACKS_TOO_LARGE = _("The chunk decompresses to more than {most} bytes; write smaller chunks.")
CHUNK_GZIP_END_MISMATCH = _("The gzip data of the chunk does not end where the chunk ends.")
CHUNK_GZIP_DAMAGED = _("The gzip data of the chunk is damaged ({error}).")
CHUNK_MAGIC_MISMATCH = _("No chunk begins here: found {found}, expected {expected}.")
CHUNK_RECORD_TOO_LONG = _("The chunk is damaged: a record is longer than the rest of the chunk.")
RECORD_TOO_SHORT = _("A record must have at least {least} bytes; this one has {count}.")
RECORD_NOT_FEATURES_AND_LABEL = _("This is not a record of features and label (version {version}, kind {kind}).")
RECORD_SHAPE_TRUNCATED = _("A record ends inside its shape.")
RECORD_SIZE_MISMATCH = _("A record of shape {shape} must have {expected} bytes; this one has {count}.")
NO_RECORDS_TO_STACK = _("There are no records to stack.")
IMAGE_COLOUR_DEPTH_UNSUPPORTED = _(
    "The image has colours of more than 8 bits, which would be truncated to 8. Pass decode= to the reader, or "
    "save the colours as greyscale images or arrays."
)
TARGET_FORMAT_UNKNOWN = _("Data can be written as {names}, not as {name}.")
SHARD_COUNT_INVALID = _("The number of shards must be from 1 to {most}, not {count}.")
FILE_PREFIX_INVALID = _("{prefix} is not a valid prefix for file names. Use letters, digits and hyphens.")
OUTPUT_EXISTS = _("{path} already exists. Choose another folder or prefix, so that nothing is overwritten.")
RECORD_NOT_WRITABLE = _("Record {number} cannot be written as {format}: {error}")
RECORD_NOT_BYTES_OR_TEXT = _("it is neither bytes nor text, but a {kind}. Write it as values.")
SAMPLE_NAME_OUTSIDE_FOLDER = _("The name {name} points outside its folder. Give the sample another key.")
FILE_CHANGED_SINCE_INDEXED = _("{where}: the file has changed since it was indexed. Index it again.")
READ_TOO_LARGE = _("{where}: {size} bytes cannot be read at once; the limit is {most}.")
COMPRESSED_ARRAYS_TOO_LARGE = _(
    "{where}: {size} bytes of compressed arrays cannot be read at once; the limit is {most}. Save them with "
    "np.savez, without compression, so that they can be read in pieces."
)
NPZ_INVALID = _("{where}: this is not an np.savez file ({error}). Save it again.")
NPY_INVALID = _("{where}: this is not a NumPy array ({error}). Save it again.")
ARRAY_OF_OBJECTS = _("{where}: the array contains Python objects, which are not supported. Save numbers or text.")
ARRAY_WITHOUT_ROWS = _("{where}: the array has no rows. Save an array with at least one dimension.")
ARRAY_ROWS_EMPTY = _("{where}: the rows of the array are empty. Save rows that contain values.")
ARRAY_TRUNCATED = _("{where}: the file ends inside the array. It was truncated; copy it again.")
ARRAY_LENGTHS_DIFFER = _(
    "{where}: the arrays have different numbers of rows ({counts}). Save arrays of the same length, or name each "
    "array after its split, such as x_train and x_test."
)
GZIP_TRUNCATED = _("{path}: the file ends inside its gzip data. It was truncated; copy it again.")
GZIP_DAMAGED = _("{path}: the gzip data is damaged ({error}). Restore the file.")
GZIP_RATIO_TOO_HIGH = _(
    "{path}: the file decompresses to more than {times} times its size. If this is intended, decompress it first."
)
IDX_INVALID = _("{path}: this is not an IDX file, but its name or the specified format says that it is.")
IMAGE_LABEL_COUNT_MISMATCH = _(
    "{path}: it has {images} images, but {file} has {labels} labels. Restore the files, or rename them."
)
TF_EXAMPLE_INVALID = _("This is not a tf.train.Example ({error}). Read it as bytes, with the format tfrecord.")
CSV_QUOTE_UNCLOSED = _("{where}: a quote that opens here or later is never closed.")
CSV_INVALID = _("{where}: this is not valid CSV ({error}). Correct the row, or quote it.")
CSV_CELL_COUNT_MISMATCH = _("{where}: the row has {count} cells, but the first row names {expected}.")
CSV_CELL_COUNT_MISMATCH_SEPARATOR = _(
    "{where}: the row has {count} cells, but the first row names {expected}. The separator of the file appears to"
    " be {separator}: give every row the same number of cells."
)
LIST_LINE_INVALID = _("{where}: {line} is not a relative path followed by a TAB and a label. Correct the line.")
LISTED_FILE_OUTSIDE_FOLDER = _("{where}: {name} is not a file in the folder of the list. Put the file itself there.")
LISTED_FILE_UNREADABLE = _("{path} lists {name}, which cannot be read ({error}). Upload the dataset again.")
TEXT_NOT_UTF8 = _("{where}: the text is not UTF-8 ({error}). Save it as UTF-8.")
LINE_TOO_LONG = _("{where}: no line ends within {most} bytes. Check that the file is text.")
JSON_LINE_INVALID = _("{where}: this line is not valid JSON ({error}). Correct it, or remove it.")
ARROW_BATCHES_UNREADABLE = _("{where}: these record batches cannot be read ({error}). Restore the file.")
ARROW_DICTIONARY_UNSUPPORTED = _("{where}: Arrow dictionaries are not supported. Save these columns as plain values.")
ARROW_COMPRESSION_UNSUPPORTED = _(
    "{where}: compressed Arrow is not supported. Save it without compression, or as Parquet."
)
ARROW_BATCH_TOO_SHORT = _(
    "{where}: the record batch declares {count} rows but has too few bytes for them. Restore the file."
)
ARROW_MESSAGE_MISSING = _("{where}: no Arrow message begins here. Restore the file.")
ARROW_STREAM_TRUNCATED = _("{where}: the Arrow stream ends early. It was truncated; copy it again.")
ARROW_TRAILING_BYTES = _("{where}: there are bytes after the end of the Arrow stream. Restore the file.")
ARROW_SCHEMA_MISSING = _("{path}: this Arrow file has no schema. Restore the file.")
ARROW_SCHEMA_DAMAGED = _("{path}: the schema of this Arrow file is damaged ({error}). Restore the file.")
COLUMN_TYPE_UNSUPPORTED = _(
    "{path}: column {name} has the type {type}, which is not supported. Save it as plain values, or as Parquet."
)
COLUMN_FILE_NOT_EMBEDDED = _(
    "{where}: column {name} refers to the file {path}, whose content is not in the dataset. Save it with its "
    "files embedded."
)
ROW_ORDER_SEPARATE = _(
    "{path}: the order of the rows is stored separately (indices.arrow), which is not supported. Call "
    "flatten_indices() and save the dataset again."
)
LISTED_FILE_MISSING = _("{path} lists {name}, which is missing. Upload it too.")
SPLIT_STATE_MISSING = _("{path} lists the split {name}, whose state.json is missing. Upload it too.")
SAVED_DATASET_INVALID = _("{path} does not describe a dataset saved by HuggingFace. Save it again.")
READING_ARROW = _("Reading Arrow")
PARQUET_ROW_GROUP_UNREADABLE = _("{where}: this row group cannot be read ({error}). Restore the file.")
PARQUET_INVALID = _("{where}: this is not a Parquet file, or the file is damaged ({error}). Restore the file.")
CHUNK_CHANGED_SINCE_INDEXED = _(
    "The chunk is not the one that was indexed: the file has changed since. Index it again."
)
FILE_FORMAT_UNSUPPORTED = _(
    "{path} is not in a supported format. File names must end in {known}; or specify the format."
)
FORMAT_NOT_FOUND = _("The format {name} does not exist.")
FILE_PACKED = _("{path} is compressed with {packing}, so it cannot be read in pieces. Decompress it first.")
TFRECORD_MISSING = _("{where}: no TFRecord begins here. The file is damaged, or in another format.")
RECORD_TRUNCATED = _("{where}: the file ends inside this record. It was truncated; copy it again.")
RECORD_CHECKSUM_MISMATCH = _("{where}: the record is damaged: its checksum does not match. Restore the file.")
TAR_MEMBER_MISSING = _("{where}: no tar member begins here. The file is damaged, or in another format.")
TAR_MEMBER_HEADER_TOO_LARGE = _("{where}: the header about one member has {size} bytes; the limit is {most}.")
TAR_NEXT_MEMBER_NOT_REGULAR = _("{where}: the next member is {kind}. Put the file itself into the tar file.")
TAR_MEMBER_NOT_REGULAR = _("{where}: {name} is {kind}. Put the file itself into the tar file.")
A_LINK = _("a link")
A_DEVICE = _("a device")
A_PIPE = _("a pipe")
A_SPARSE_FILE = _("a sparse file")
TAR_MEMBER_SIZE_INVALID = _("{where}: the size of this member is not a number. Restore the file.")
SAMPLE_MEMBER_DUPLICATE = _("{path}: the sample {key} has two members named {name}. Give its members different names.")
TAR_MEMBER_TRUNCATED = _("{where}: the file ends inside this member. It was truncated; copy it again.")
TAR_MEMBER_OUTSIDE_FOLDER = _("{where}: the name {name} points outside its folder. Use relative names in the tar file.")
TAR_MEMBER_HEADER_DAMAGED = _("{where}: the header about the next member is damaged. Restore the file.")
TAR_MEMBER_TYPE_UNKNOWN = _("{where}: {name} has the unknown type {kind}. Pack it with tar --format=pax.")
PACKAGE_REQUIRED = _("{purpose} requires the package {package}: add it to the requirements of the job, or install it.")
READING_PARQUET = _("Reading Parquet")
CHUNK_RECORDS_EXCEED_SIZE = _("The chunk header declares {count} records, but the chunk can hold at most {most}.")
CHUNK_END_MISMATCH = _("The chunk is damaged: its {count} records end at byte {end} of {size}.")
COMPRESSOR_UNKNOWN = _("The chunk specifies the unknown compressor {number}; supported: {known}.")
CHUNK_TOO_LARGE = _("{where}: the chunk header declares {size} bytes; the limit is {most}.")
CHUNK_SNAPPY_DAMAGED = _("The snappy data of the chunk is damaged ({error}).")
RECORD_TOO_LARGE = _("A record can have at most {most} bytes; this one has {count}.")
COMPRESSOR_INVALID = _("compressor must be one of {names}, not {name}.")
RECORD_TYPE_UNSUPPORTED = _("A {kind} cannot be a record. Write numbers, text, bytes, arrays, or dicts of them.")
ARRAY_TYPE_UNSUPPORTED = _("An array of {kind} cannot be a record. Write arrays of numbers or text.")
RECORD_NOT_ENCODABLE = _("This cannot be a record ({error}). Write plain values without circular references.")
RECORD_NOT_VALUES = _("This is not a record of values; read it as bytes, or as features and label.")
RECORD_VALUES_DAMAGED = _("A record of values is damaged ({error}). Restore the file from its source.")
UNREAD_FORMAT_UNSUPPORTED = _(
    "The file is not in a supported format: it is stored unchanged, and jobs do not read records from it."
)
UNREAD_PACKED = _(
    "The file is compressed as a whole: it is stored unchanged, and jobs do not read records from it. To train on"
    " it, decompress it and upload it again."
)
UNREAD_TEXT_AMONG_OTHER_FILES = _(
    "The file is text next to files of another format: it is stored unchanged, and jobs do not read records from it."
)
UNREAD_OTHER_FORMAT = _(
    "The file is not in the format of this dataset: it is stored unchanged, and jobs do not read records from it."
)
UNREAD_IMAGE_WITHOUT_CLASS_FOLDER = _(
    "The file is an image that is not in a folder per class, or is next to files of another format: it is stored "
    "unchanged, and jobs do not read records from it."
)
UNREAD_NOT_IN_STATE = _(
    "The file is not among the files that state.json lists: it is stored unchanged, and jobs do not read records "
    "from it."
)
UNREAD_SPLIT_UNUSED = _(
    "The split of the file is not for training, validation or testing: it is stored unchanged, and jobs do not "
    "read records from it."
)
UNREAD_LABELS_OF_IMAGES = _("The file contains the labels of images: they are read together with the images.")
FORMAT_UNSUPPORTED = _("No file of {name} is in a supported format. File names must end in {suffixes}.")
DID_YOU_MEAN = _("Did you mean {name}?")
FILE_UNREADABLE = _("{file} cannot be read ({error}).")
PATH_TEMPORARILY_UNREADABLE = _("{path} cannot be read at the moment ({error}).")
FILE_CHANGED = _("{file} has changed: {error}")
WRITER_CLOSED = _("This writer is closed; open another one to write more.")
CHUNK_PLACE = _("{path}, chunk at {offset}")
OFFSET_PLACE = _("{path}, offset {offset}")
RECORD_PLACE = _("{path}, chunk at {offset}, record {number}")
HDF5_UNSUPPORTED = _(
    "{path} is HDF5, which is not supported. Save its arrays with np.savez, or a table with to_parquet."
)
ZIP_UNSUPPORTED = _(
    "{path} is a zip file, which is not supported as a whole. Unpack it, or compress each file with gzip."
)
ZIP_EMPTY = _("{path} is an empty zip file.")
PICKLE_UNSUPPORTED = _(
    "{path} is a pickle file, which is not read because it can run code. Save arrays with np.savez, or a table "
    "with to_parquet."
)

register("data", globals())
