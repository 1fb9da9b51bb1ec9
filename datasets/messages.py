"""Messages of datasets, uploads and their storage."""

from runtime.messages import Template as _
from runtime.messages import register

AVAILABLE_NAMES = _("Available: {names}.")
FILE_INVALID_AS_FORMAT = _("{path} is not valid as {format}: {why}")
VERSION_CHUNK_LIMIT = _(
    "{path}, offset {offset}: the version has more than {count} chunks. Write larger chunks, of some MiB each."
)
LISTED_FILE_NOT_IN_VERSION = _(
    "{path}, chunk at {offset}: it lists {name}, which is not a file of this version. Upload it too, or remove "
    "the line."
)
FORMAT_PACKAGE_MISSING = _(
    "{path} is {format}, which this portal cannot read: the operator has to install {package}. After that, seal "
    "the version again, or create a dataset with the format 'files', which stores all files unchanged."
)
INDEXING_NEVER_FINISHED = _(
    "Indexing the files was started {tries} times and never finished. Ask the operator of the portal."
)
INDEXING_STORAGE_UNREADABLE = _(
    "The files could not be read from the storage. Seal the version again, or ask the operator."
)
RANGE_BEYOND_FILE = _("The file has {size} bytes; the range begins after its end.")
PREVIEW_CHUNK_TOO_LARGE = _("The first records are in a chunk of {size} bytes; a preview reads at most {most}.")
PREVIEW_LIMIT_EXCEEDED = _("Reading the first records requires more than {most}, so no records are shown.")
PREVIEW_NOT_FOUND = _("Version {number} has no preview; a preview is created when the version is sealed.")
FILE_PATH_INVALID = _("{path} is not a valid path for a file: {why}.")
PATH_NOT_RELATIVE = _("it must be relative")
PATH_WITHOUT_FILE_NAME = _("it does not name a file")
PATH_OUTSIDE_DATASET = _("'..' points outside the dataset")
PATH_WITH_BACKSLASH = _("it contains a backslash; write / between folders")
PATH_WITH_INVISIBLE_CHARACTER = _("it contains an invisible character")
PATH_NAME_BEGINS_WITH_DOT = _("a name in it begins with a dot")
PATH_NAME_EDGE_SPACE = _("a name in it begins or ends with a space")
PATH_TOO_LONG = _("it is longer than {count} characters")
PATH_TOO_DEEP = _("it is more than {count} folders deep")
PATH_NAME_TOO_LONG = _("a name in it has more than {count} bytes")
DATASET_NOT_FOUND = _(
    "Dataset {name} does not exist, or you do not have access to it. Check the name; deleted datasets are removed"
    " after their grace period."
)
DATASET_READ_ONLY = _("You can read {name}, but you cannot change it. Ask a member of {namespace}.")
VERSION_NOT_VISIBLE = _("Version {number} of {name} does not exist, or you do not have access to it.")
FILE_NOT_ANNOUNCED = _("Version {number} of {name} does not have this file. Announce the file again.")
FILE_NOT_FOUND = _("Version {number} of {name} has no file {path}.")
DATASET_NAME_TAKEN = _("Dataset {name} already exists. Add a version to it, or choose another name.")
DATASET_NAME_IN_GRACE = _("{name} was deleted, and its grace period has not ended. Restore it, or choose another name.")
DATASET_IN_TRASH = _("{name} has been deleted. Restore it first.")
DESCRIPTION_TOO_LONG = _("Write at most {count} characters.")
CHOICE_INVALID_OPTIONAL = _("Choose one of: {names}; or leave the field empty.")
CHOICE_INVALID = _("Choose one of: {names}.")
VERSION_FILES_INCOMPLETE = _(
    "{count} files of version {number} are incomplete, such as {path}. Continue the upload, or remove the files."
)
VERSION_EMPTY = _("Version {number} has no files. Upload files first.")
SHARED_NAMESPACE_LIMIT = _("The dataset can be shared with at most {count} namespaces.")
PART_TOO_LONG = _("The part has more than its {size} bytes.")
PART_CHECKSUM_MISMATCH = _(
    "The checksum of the part does not match the announced checksum: the part was damaged in transit. Send it again."
)
PART_TRUNCATED = _("The part ended {size} bytes early. Send it again.")
PART_INCOMPLETE = _("The part did not arrive completely: {why}. Send it again.")
PART_NOT_WRITTEN = _("The part could not be written: {why}. Ask the operator of the portal.")
DISK_FULL_UPLOAD = _("The portal's disk is full. Notify the operator, then continue the upload.")
PARTS_UNREADABLE = _("The parts cannot be read: {why}. Send the file again.")
PART_SIZE_MISMATCH = _("Part {number} has {size} bytes, but {count} were announced.")
VERSION_OPEN = _("Version {number} is not sealed yet. Seal it first.")
VERSION_SEALING = _("Version {number} is being sealed. Wait until this is finished, or create another version.")
VERSION_SEALED = _("Version {number} is sealed and cannot be changed. Create another version.")
VERSION_SEALING_FAILED = _("Version {number} could not be sealed. Correct it, then seal it again.")
VERSION_NUMBER_DELETED = _("Version {number} has been deleted. Create another version.")
STORAGE_KEY_NOT_FOUND = _("The storage has no object {key}. It may have been deleted.")
STORAGE_OPERATION_FAILED_MISSING = _("{key} could not be {operation}: {why}.")
STORAGE_OPERATION_FAILED = _("{key} could not be {operation}: {why}. Ask the operator of the portal.")
STORAGE_DISK_FULL = _("{key} could not be {operation}: the disk is full. Delete data that you do not need.")
WRITTEN = _("written")
DELETED = _("deleted")
READ = _("read")
FILE_CHECKSUM_MISMATCH = _(
    "The checksum of the received file {path} does not match the announced checksum: the file was changed while "
    "it was sent, or it was damaged. Send it again from the first part."
)
PARTS_MISSING = _("{missing} of the {count} parts of {path} are missing. Send them.")
FILE_SIZE_INVALID = _("The size of a file must be from 0 to {most} bytes.")
SHA256_INVALID = _("Write the SHA-256 as 64 lowercase hexadecimal digits.")
FILE_EXISTS = _(
    "Version {number} already has a file {path}, with {size} bytes and different content or a different spelling."
    " Remove that file first, or give this file another path."
)
FILE_FOLDER_CONFLICT = _("{path} conflicts with {other}: a name cannot be both a file and a folder.")
FILE_NOT_ACCEPTING_PARTS = _("{path} is being completed, or its upload was started over: it does not accept parts now.")
PART_NOT_FOUND = _("{path} has {count} parts, counted from 0; part {number} does not exist.")
VERSION_FILE_LIMIT = _("A version can have at most {most} files. Pack small files together.")
PART_CHECKSUM_INVALID = _("Send the {kind} of the part as {digits} lowercase hexadecimal digits.")
PARTS_CHANGED = _("The parts of {path} have changed. Announce the file again.")
FILE_SHA256_REQUIRED = _("Send the SHA-256 of the file as 64 lowercase hexadecimal digits.")
TYPE_EMPTY = _("empty")
TYPE_BOOLEAN = _("boolean")
TYPE_INTEGER = _("integer")
TYPE_NUMBER = _("number")
TYPE_TEXT = _("text")
TYPE_BYTES = _("bytes")
TYPE_LIST = _("list")
TYPE_OBJECT = _("object")
S3_PACKAGE_MISSING = _("The S3 storage requires boto3: pip install -r requirements-s3.txt.")
STORAGE_BUCKET_FULL = _("{key} could not be stored: the bucket is full. Delete data that you do not need.")
STORAGE_UNAVAILABLE = _("The storage cannot be reached ({error}). Try again, or ask the operator.")
DISK_FULL = _("The portal's disk is full. Notify the operator, then try again.")
STORAGE_SIZE_MISMATCH = _("The storage has {count} bytes of {name}, but {expected} were sent. Ask the operator.")
VERSION_UNREADABLE = _(
    "Version {number} of {name} has no records that a job can read: its files are not in a supported format. "
    "Upload them in one of the formats that docs/formats.md lists."
)
NOT_SHARED_WITH_NAMESPACE = _(
    "{name} is not shared with {namespace}. Ask a member of {owner} to share it, or submit the job there."
)
NEWEST_VERSION = _("The newest version is {number}.")
FILL_AND_SEAL_FIRST = _("Upload files to a version and seal it first.")
DID_YOU_MEAN = _("Did you mean {name}?")
DATASET_NOT_FOUND_FOR_JOB = _("There is no dataset {name} that a job in {namespace} can use. {hint}")
NO_SEALED_VERSION_NUMBER = _("{name} has no sealed version {number}. {advice}")
NO_SEALED_VERSION = _("{name} has no sealed version. {advice}")
MEMORY_OR_TIME = _("{memory} MiB of memory or {seconds} s")
STORAGE_REQUEST_REJECTED = _("The storage rejected {key} ({code}: {error}). Ask the operator of the portal.")
NOTHING_TO_CHANGE = _("Specify at least one of: description, visibility.")
FILE_REMOVED_DURING_UPLOAD = _(
    "{path} was removed, or its upload was started over, while it was being uploaded. Announce it again."
)

register("datasets", globals())
