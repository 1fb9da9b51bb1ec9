"""Messages of job specifications."""

from runtime.messages import Template as _
from runtime.messages import register

NOT_A_MAPPING = _("A specification must be a mapping of fields such as name, files and roles.")
FIELD_UNKNOWN = _("There is no such field.")
DID_YOU_MEAN = _("Did you mean {name}?")
KNOWN_NAMES = _("Known fields: {names}.")
NOT_TEXT = _("Must be text.")
NUMBER_INVALID = _("{value} is not valid: write a whole number from {least} to {most}.")
VALUE_UNKNOWN = _("{value} is not valid. Choose one of {names}.")
NOT_A_MAPPING_OF_NAMES = _("Must be a mapping of names to values.")
NAME_MISSING = _("Name the job, for example digits.")
STALL_RESTART_IMPOSSIBLE = _(
    "The processes of a job of framework {framework} meet only once, so none can be restarted alone. Set notify or"
    " fail."
)
TIME_OUT_OF_RANGE = _("Write a time from {least} to {most}.")
MIN_ABOVE_REPLICAS = _("{least} is more than the {count} replicas that the job starts with.")
MAX_BELOW_REPLICAS = _("{most} is less than the {count} replicas that the job starts with.")
CPU_OUT_OF_RANGE = _("Write a number of cores from 0.01 to 1024.")
MEMORY_TOO_SMALL = _("A replica needs at least {least} to start. Request at least that much.")
MEMORY_INVALID = _("{value} is not an amount of memory: write a number with Ki, Mi or Gi (or k, M, G), such as 512Mi.")
CPU_INVALID = _("{value} is not a number of cores: write a number such as 1, 0.5 or 500m.")
TIME_INVALID = _("{value} is not a duration: write a number with s, m, h or d, such as 90s or 1h.")
FILES_MISSING = _("Add at least the entrypoint, such as train.py.")
FILES_TOO_LARGE = _("The files have {size} bytes in total; the limit is {most}.")
FILE_TOO_LARGE = _("The file has {size} bytes; the limit is {most}. Put data into a dataset.")
FOLDER_IS_FILE = _("{folder} is a file; it cannot be a folder too.")
NOT_PYTHON = _("{value} is not a Python file. Name one that ends in .py.")
ENTRYPOINT_MISSING = _("{value} is not among the files. The files are: {names}.")
SYNTAX_ERROR = _("Line {line}, column {column}: {problem}.")
CONTENT_NOT_TEXT = _("The content must be text.")
CONTENT_NOT_UTF8 = _("The content cannot be encoded as UTF-8.")
FILE_NAME_INVALID = _("A file name has 1 to 200 printable characters.")
PATH_INVALID = _("Write the path relative to the job's folder, with / between its parts and without . or .. as a part.")
PATH_PART_TOO_LONG = _("One part of the path is too long.")
NAME_HIDES_RUNTIME = _("{name} would hide the platform's module runtime. Choose another name.")
REQUIREMENT_TOO_LONG = _("Write one requirement of at most 300 characters on one line.")
YAML_INVALID = _("The YAML is not valid: {problem}")
FRAMEWORK_UNKNOWN = _("{value} is not an available framework. This installation runs {names}.")
NO_PSERVERS_2 = _("A {framework} job has no parameter servers. Remove them.")
NO_MASTER = _("A {framework} job has no master. Remove this field.")
TRAINERS_FIXED = _("The number of trainers of a {framework} job is fixed: they all connect once, at the start.")
REMOVE_OR_SET = _("Remove this field, or set it to {number}.")
NESTED_TOO_DEEPLY = _("The document is nested too deeply.")
DOCUMENT_TOO_LARGE = _("The document is larger than {size} MiB.")
YAML_ALIAS = _("YAML aliases (*name) are not supported. Write the value out.")
PIP_OPTION = _("Options of pip are not supported here, only requirements such as pandas==2.3.3.")
REQUIREMENT_ADDRESS = _("Addresses are not supported here. Name a released package, such as pandas==2.3.3.")
REQUIREMENTS_NOT_A_LIST = _("Write a list of pip requirements, such as [pandas==2.3.3].")
VARIABLE_NAME_INVALID = _("The name of a variable has letters, digits and underscores and does not begin with a digit.")
VARIABLE_NAME_RESERVED = _("Names that begin with {prefix} are reserved for the platform. Choose another name.")
PARAMETER_NAME_INVALID = _(
    "The name of a parameter has at most {most} letters, digits, underscores, dots and hyphens, and begins with a"
    " letter or an underscore."
)
PARAMETER_NOT_SCALAR = _("The value of a parameter is a number, a text, true or false.")
PARAMETER_NOT_FINITE = _("The value of a parameter is a finite number.")
PARAMETER_NUMBER_TOO_LARGE = _("The number is too large to be read exactly. Write it as a text, in quotes.")
PARAMETER_TOO_LONG = _("The text is longer than {most} characters. Put it into a file.")
PARAMETER_SAME_VARIABLE = _("The environment variable of this parameter is that of {name}. Choose another name.")
VALUE_NOT_TEXT = _('The value must be text. Put it in quotes: "{value}".')
VALUE_CHARACTER_INVALID = _("The value contains a character that environment variables cannot have.")
TOO_MANY = _("There are {count} {things}; the limit is {most}.")
VALUES_TOO_LONG = _("The values are longer than {size} KiB in total. Put data into a file.")
COMMAND_INVALID = _("Write the program and its arguments, such as [sh, train.sh].")
IMAGE_NAME_INVALID_2 = _(
    "{value} is not the name of an image: write a name with an optional registry and tag, such as "
    "registry.example.com/team/train:1."
)
IMAGE_NEEDS_COMMAND = _("An image runs unchanged, which needs the framework command. Set framework to command.")
IMAGE_UNCHANGED = _("Nothing can be added to an image of your own.")
REMOVE_THIS_OR_IMAGE = _("Remove this field, or remove image.")
IMAGE_NO_PSERVERS = _("A job with its own image has no parameter servers. Remove them.")
PSERVERS_NEED_DATASET = _("Parameter servers of a {framework} job need a dataset. Name one, or set their number to 0.")
NAME_INVALID = _(
    "{value} is not a valid name. Use up to 63 lowercase letters, digits and hyphens, with a letter or digit at "
    "both ends, such as {proposal}."
)
REQUIREMENT_INVALID = _(
    "{value} is not a pip requirement. Write a name and an optional version, such as pandas==2.3.3."
)
VALUE_TOO_LONG = _("The value is longer than {size} KiB.")

register("specification", globals())
