"""Messages of a training: agents, masters, parameter servers, trainers, checkpoints."""

from runtime.messages import Template as _
from runtime.messages import register

SPLIT_EMPTY = _("The split {split} of {name} has no records.")
TRAINER_COUNT_ONE = _("{count} trainer")
TRAINER_COUNT = _("{count} trainers")
EXITED = _("exited with code {code}")
EXITED_WITH_ERROR = _("exited with code {code}: {error}")
TERMINATED_BY_SIGNAL = _("was terminated by signal {signal}")
OUT_OF_MEMORY_LIMIT = _("ran out of memory (limit {limit})")
OUT_OF_MEMORY_USED = _("ran out of memory: used {used} of {limit}")
OUT_OF_DISK = _("used {used} of {limit} of disk; write less, or remove files that are not needed")
USAGE_NOT_MEASURED = _("was terminated because its resource usage could not be measured ({problem})")
NETWORK_PROCESS_ENDED = _("was terminated because the process that holds the network of its attempt has ended")
PROCESS_NOT_WATCHED = _("its process could not be monitored: {problem}")
CONTROL_NOT_OPENED = _("The portal cannot look into this replica: its control socket could not be opened ({problem}).")
HOLD_NOT_OPENED = _(
    "This replica cannot be held after an exception: the socket for it could not be opened ({problem})."
)
NOT_STARTED = _("could not be started: {why}")
CPU_TIME_EXCEEDED = _("exceeded its limit of {seconds} s of CPU time")
ATTEMPT_OVER = _("was terminated because its attempt has ended: {why}")
STOPPED = _("was asked to stop")
MEMBERSHIP_LOST = _("lost its membership in the job: {why}")
BATCH_RAGGED = _("The records of a batch have different numbers of values. Set decode= on the reader.")
NO_CSV_FORM = _("These records cannot be represented as CSV. Use format=raw, or read the files of the chunks.")
MODE_UNKNOWN = _("There is no mode {value}. Use sync, async, m_of_n(2), ssp(3) or outer(100).")
MODE_NUMBER_INVALID = _("The number of {mode} must be at least {least} (got {number}).")
TRAINER_JOINED = _("{trainer} joined.")
TRAINER_LEFT = _("{trainer} left.")
ALL_PASSES_DONE = _("All {count} passes are done.")
TASK_FAILED = _("Task {task} failed on {trainer}: {why}")
TASK_OVERDUE = _("Task {task} is overdue on {trainer} and moves to the end of the queue.")
TRAINER_SILENT = _("{trainer} has not requested its tasks for a long time; other trainers take them over.")
TRAINER_LEFT_TASK_RETURNED = _("{trainer} left; its task {task} returns to the queue.")
TRAINER_LEFT_TASKS_RETURNED = _("{trainer} left; its tasks {tasks} return to the queue.")
RECORD_QUARANTINED = _(
    "Record {number} ({file}) of {dataset} (task {task}, chunk {chunk}) is skipped from now on: {trainers} could "
    "not process it."
)
TASK_DISCARDED = _("Task {task} is skipped in this pass after {count} failures: {records}.")
TASK_UNREADABLE = _("Task {task} is skipped in this pass because no trainer can read {records} of {dataset}.")
DATASET_UNREADABLE = _(
    "No trainer can read {records} of {dataset}: {why} Restore the file or upload the dataset again, then run the job."
)
CHECKPOINT_UNREADABLE = _("The checkpoint {name} cannot be read: {error}.")
SPOOL_UNREADABLE = _("The {kind} stored by this replica cannot be read ({error}). Some may be missing.")
STAGED_BLOCKS_ELSEWHERE = _("Numbers that were sent early arrived on another connection; send all of them.")
MIXED_RELEASES = _(
    "This process runs release {ours} of the runtime, but {replica} runs {theirs}: all processes of a job need "
    "the same release. Install one release wherever the job runs, then run the job again."
)
DATASET_EMPTY = _("The dataset {dataset} has no records: there is nothing to train on.")
NO_TASK_DONE = _("No task of pass {number} could be completed: {records} of {dataset}.")
SEE_TRAINER_LOGS = _("See the trainers' logs for the cause.")
NO_CHECKPOINT_USABLE = _("No checkpoint could be used; the parameters start from their initial values.")
PSERVER_RESUMES = _("Parameter server {server} resumes from version {version}.")
PSERVER_RECOVERED_FROM_CHECKPOINT = _(
    "Parameter server {server} recovered after {seconds} s at version {version}, from its checkpoint."
)
PSERVER_RECOVERED_FROM_TRAINER = _(
    "Parameter server {server} recovered after {seconds} s at version {version}, with {trainer}'s values."
)
OPTIMISER_RESET = _("Its optimiser starts from its initial state: there was no checkpoint yet.")
ADAM_STEPS_LARGER = _("Adam makes larger steps than usual until its moving averages have settled.")
OPTIMISER_RESUMES = _("Its optimiser resumes from the checkpoint of version {version}.")
TABLE_ROWS_FROM_CHECKPOINT = _("The rows of its tables come from the checkpoint of version {version}.")
PSERVER_VALUES_LOST = _(
    "The values of parameter server {server} are lost: no remaining trainer has them, and there are {kept} in a "
    "checkpoint."
)
ONLY_VALUES_OF_VERSION = _("only those of version {version}")
PSERVER_BEHIND_TRAINER = _(
    "Parameter server {server} recovered at version {version}, but {trainer} is already at version {seen}."
)
NOT_REPLACED_IN_TIME = _("No process has replaced it within {seconds} s.")
DATA_RESUMES = _("Resuming training data at pass {number}; already done: {tasks}.")
RESUMES_FROM_COMMON_STATE = _("The next attempt resumes from the last state that all servers saved together.")
TRYING_VERSION_NEXT = _("Trying version {version} next.")
NO_OTHER_CHECKPOINT = _("No other checkpoint is available.")
NOT_A_CHECKPOINT = _("it is not a checkpoint")
CHECKPOINT_TRUNCATED = _("it is truncated after {count} bytes")
CHECKSUM_MISMATCH = _("its checksum does not match")
CHECKPOINT_NOT_RECORDED = _("it is not the file that was recorded")
HEADER_TOO_LONG = _("its header declares {count} bytes")
HEADER_UNREADABLE = _("its header cannot be read ({error})")
BLOCK_CHECKSUM_MISMATCH = _("block {block} of array {array} does not match its checksum")
BLOCK_TOO_LARGE = _("block {block} of array {array} declares {count} bytes")
TASK_COUNT_ONE = _("{count} task")
TASK_COUNT = _("{count} tasks")
TASK_SEARCHED = _("Searching task {task} for the cause of its failures: {records}.")
RECORD = _("record {number} ({file})")
RECORD_RANGE = _("records {first}-{last} ({file})")
ALL_PASSES_DONE_EXCEPT = _(
    "All {count} passes are done, except for the data that no trainer could process: {records} of {dataset}."
)
SCRIPT_RAISED = _("the script raised {error}")
MASTER_REPLACED = _("This master has been replaced by another one and must not hand out tasks any more.")
MASTER_ROLE_TAKEN = _("Another process has become this job's master; this process restarts and waits on standby.")
ATTEMPT_DATASET_CHANGED = _("This attempt started with {before} and cannot continue with {now}.")
RESTORE_DATASET_OR_RERUN = _("Restore the dataset, or run the job again.")
MASTER_CHANGE_FAILED = _("The master failed in the middle of a change.")
MASTER_ENDING = _("This master is shutting down. Send the request to the next master.")
MASTER_OPERATION_UNKNOWN = _("The master does not support {operation}; send the request to a parameter server.")
OPERATION_BODY_INVALID = _("The body of {operation} is not valid: {error}.")
NO_MASTER_RESPONDED = _("No master has responded for {seconds} s: {why}")
REPLACED_MASTER_RESPONDED = _("The response came from a master that has been replaced.")
MASTER_RESPONSE_UNKNOWN = _("This version does not support the response of the master: {body}.")
PARAMETER_TYPES_UNSUPPORTED = _("Parameters must be float32 or float64, not {types}.")
OPTIMISER_UNKNOWN = _("Unknown optimiser {name}; use one of {names}.")
NUMBER_NEGATIVE = _("{rule}: {name} must be a number of at least 0, not {value}.")
SCHEDULE_UNKNOWN = _("Unknown learning rate schedule {name}; use one of {names}.")
UPDATES_INVALID = _("{schedule}: the number of updates must be a whole number of at least 1, not {value}.")
LEARNING_RATE_INVALID = _("{schedule}: the learning rate must be a number of at least 0, not {value}.")
PUSH_NOT_FINITE = _("A gradient or value contains NaN or infinity; nothing was applied.")
TABLE_DATA_UNREADABLE = _("The table data from {sender} cannot be read: {error}.")
TABLE_DECLARATION_UNREADABLE = _("A table declaration from {sender} cannot be read: {error}.")
ROW_COUNT_MISMATCH = _("{sender} sent {ids} ids but {rows} rows for table {name}.")
ROWS_MISPLACED = _("{sender} sent rows of table {name} that belong to another parameter server.")
ROW_NOT_FINITE = _("A row of table {name} from {sender} contains NaN or infinity.")
TABLE_MEMORY_FULL = _(
    "Table {name} on parameter server {server} holds {rows} rows and has no memory for {more} more from {sender}."
)
ADD_PSERVER_MEMORY = _("Increase the memory of the parameter servers, or use more of them.")
INITIALIZER_UNKNOWN = _("Unknown initializer {name} of rows; use one of {names}.")
TABLE_DIM_INVALID = _("The rows of table {name} must have 1 to {most} numbers, not {dim}.")
TABLE_DECLARATIONS_DIFFER = _(
    "Another trainer declared table {name} with {theirs}, this one with {ours}; use the same in all trainers."
)
BLOCK_MISPLACED = _("Block {block} of tensor {tensor} does not belong to this server.")
BLOCK_TYPE_WRONG = _("Block {block} of tensor {tensor} arrived with the wrong type {type}.")
PSERVER_OPERATION_UNKNOWN = _("A parameter server does not support {operation}.")
STEP_SAMPLES_NEGATIVE = _("The number of samples of a step must be at least 0, not {count}.")
PARAMETERS_NOT_DECLARED = _("The parameters have no values yet; declare them first.")
PARAMETERS_WITHOUT_VALUES = _("The parameters have no values yet.")
NO_SHARED_MEMORY = _("This connection has no shared memory; send the numbers over the connection.")
BLOCK_COUNT_WRONG = _("{count} blocks arrived, but this server expects {due}.")
PROCESS_NOT_A_MEMBER = _("This process is not a member of the job; it must register before it connects.")
DECLARATION_UNREADABLE = _("The declaration cannot be read: {error}.")
PARAMETERS_DIFFER = _(
    "The trainers declared different parameters ({names}); names, shapes and types must be the same in all trainers."
)
MODES_DIFFER = _("Another trainer declared mode {theirs}, this one {ours}; use the same in all trainers.")
OPTIMISERS_DIFFER = _("Another trainer declared {theirs}, this one {ours}; use the same in all trainers.")
TRAINER_FENCED = _("This trainer is no longer a member of the job; stop it.")
DECLARE_BEFORE_VALUES = _("Declare the parameters before you send their values.")
PUSH_OUTSIDE_PASS = _("A push arrived outside of a pass.")
PSERVER_COUNT_INVALID = _("The parameters can be distributed across 1 to {most} parameter servers, not {count}.")
NEWER_CHECKPOINT_WRITER = _(
    "A newer process has written checkpoints for this parameter server; this process must stop."
)
PSERVER_REPLACED = _("Another process now runs as this parameter server; this process must stop.")
MASTER_STATE_STALE = _("The state in the coordination store is newer than this master's; it must be read again.")
REPLICA_REPLACED = _("Another process now runs as {replica}; this process must stop.")
REQUEST_OF_OTHER_ATTEMPT = _("This request belongs to another attempt of a job; its sender should stop.")
STOP_REQUESTED_WHILE_WAITING = _("This process received a stop request while it waited for the master.")
PROTOCOL_VERSIONS_DIFFER = _(
    "This job runs two versions of the runtime: the peer uses version {theirs} of the protocol, this process "
    "version {ours}."
)
RERUN_FOR_ONE_VERSION = _("Cancel the job and run it again; all its replicas then have the same version.")
PSERVER_MEMORY_TOO_SMALL = _(
    "{server} needs {needed} for its part of the parameters ({values} for values, {state} for the optimiser's "
    "state, and memory for {copies}) but has {limit}."
)
GRADIENTS_AND_CHECKPOINT_COPY = _("the gradients and a copy for checkpoints")
GRADIENTS = _("the gradients")
INCREASE_PSERVER_RESOURCES = _("Increase the memory of role pserver, or its number of replicas.")
PARAMETER_MISSING = _(
    "The job has no parameter {name}. It has: {names}. Add it to params of the job, or read it with a default:"
    ' config.get("{name}", ...).'
)
INIT_CALLED_TWICE = _("dist.init() was already called in this process; use the job that it returned.")
BATCH_SIZE_INVALID = _("A batch must have at least one record, not {count}.")
READ_AHEAD_INVALID = _("The number of batches to read in advance must be at least 0, not {count}.")
PARAMETERS_ALREADY_SET = _("This job already has its parameters; put all arrays into one dict.")
MODEL_PATH_OUTSIDE_OUTPUT = _("Save the model in the output directory, as in save_model('model.npz'), not {path}.")
NO_PARAMETERS_TO_SAVE = _("There are no parameters to save; pass a function that writes the model to a path.")
PARAMETERS_NOT_A_DICT = _('Parameters must be a dict of NumPy arrays by name, such as {"w": np.zeros((64, 10), "f4")}.')
PARAMETER_NAME_INVALID = _("The name of a parameter must be a string, not {name}.")
PARAMETER_TYPE_INVALID = _("The parameter {name} is a {type}; convert it to a float32 or float64 array.")
PARAMETER_NOT_FINITE = _("The parameter {name} contains NaN or infinity before training has started.")
GRADIENT_NOT_AN_ARRAY = _("The gradient of {name} is a {type}; push a NumPy array.")
GRADIENT_SHAPE_WRONG = _("The gradient of {name} has shape {shape}, but the parameter has {due}.")
GRADIENT_TYPE_WRONG = _(
    'The gradient of {name} is {type}, but the parameter is {due}; convert it with .astype("{wanted}").'
)
GRADIENTS_NOT_A_DICT = _("Gradients must be a dict of arrays by parameter name, not a {type}.")
PARAMETER_UNKNOWN = _("Unknown parameter {name}; the parameters are {names}.")
GRADIENT_MISSING = _("The gradient of {name} is missing; push a gradient for every parameter.")
TABLE_IDS_TYPE_WRONG = _("The ids of table {name} are {type}; use integers (int64).")
TABLE_GRADIENTS_NOT_AN_ARRAY = _("The gradients for table {name} are a {type}; push a NumPy array.")
TABLE_GRADIENTS_SHAPE_WRONG = _("The gradients for table {name} have shape {shape}, but must have {due}.")
TABLE_GRADIENTS_TYPE_WRONG = _('The gradients for table {name} are {type}; convert them with .astype("float32").')
TABLE_NAME_INVALID = _("The name of a table must be a string that no other table of the job has, not {name}.")
TRAINER_MEMORY_FULL = _(
    "This trainer has no memory for {rows} more rows of table {name}: mode outer keeps the rows that it changes."
)
ADD_TRAINER_MEMORY = _("Increase the memory of the trainers, or use another mode.")
TABLE_OPTIONS_INVALID = _("Table {name} accepts init=dist.Uniform(0.05) or similar, and opt=dist.SGD(0.1) or similar.")
GRADIENT_NOT_FINITE = _("The gradient of {name} contains NaN or infinity. Nothing was applied.")
LOWER_LEARNING_RATE = _("Lower the learning rate, or check the cost for a division by zero or a logarithm of zero.")
PUSH_SAMPLES_INVALID = _("n, the number of samples behind the gradients, must be at least 1, not {value}.")
REPORT_VALUE_INVALID = _("report accepts only numbers; {name} is {value}.")
RECORD_SKIPPED = _("Skipped: {why}.")
TRAINER_ENDING = _("This trainer is shutting down: {why}.")
DATASETS_DIFFER = _("This job's dataset is {ours}, but the script reads {theirs}; use the same name in both places.")
DATASET_NOT_SPECIFIED = _("Specify the dataset to read, as in job.reader({example}); available: {names}.")
INIT_NOT_IN_TRAINER = _("This process is a {role}; only trainers call dist.init().")
INIT_NOT_CALLED = _("Call dist.init() before dist.train().")
PARAMETER_DEVICE_WRONG = _("The parameter {name} is on {device}; call model.cpu() before you attach it.")
MODEL_TYPE_WRONG = _("A parameter is {type}; call model.float() before you attach it.")
PROCESSES_MISSING = _(
    "The processes that this process needs did not all register within {seconds} s; registered: {names}."
)
MEMBERS_UNAVAILABLE = _("The list of this job's other processes is no longer available: {why}.")
KEEPALIVE_UNANSWERED = _("No keepalive was answered in time.")
LEASE_ENDED = _("The coordination store has ended the lease.")
TASK_SLOW = _(
    "Task {task} has been running on {trainer} for {seconds} s ({usual} s is usual); {other} runs it too, and the"
    " first result counts."
)
CONNECTION_REFUSED = _(
    "A connection from {host} was refused because its peer did not prove that it belongs to this job; {count} "
    "refused since this process started."
)
STORE_RESPONDS_AGAIN = _("The coordination store responds again after {seconds} s; tasks are handed out as before.")
STORE_AWAY_TRAINING_CONTINUES = _("{why} Meanwhile, trainers continue with the tasks that they have.")
REGISTRATION_REMOVED = _("its registration was removed from the coordination store")
LEASE_EXPIRED_AT_REGISTRATION = _("its lease expired during registration")
REQUEST_OF_REPLACED_PROCESS = _("This request is for a process that has been replaced; register again.")
NUMBERS_NOT_EXPECTED = _("Numbers arrived where none are expected: a master accepts only requests.")
MASTER_RESPONSE_FAILED = _("The master failed while it responded; it must be restarted.")
STORE_NOT_OPENED = _(
    "The coordination store {path} cannot be opened ({error}). Its directory must exist and be writable."
)
STORE_NOT_RESPONDING = _("The coordination store did not respond ({error}). Try again.")
STORE_ADDRESS_INVALID = _(
    "{address} is not an address of a coordination store. Use an address such as sqlite:///path/to/file or "
    "etcd://host:2379."
)
ETCD_ADDRESS_INVALID = _("The address of etcd cannot be parsed: {why}.")
ETCD_ADDRESS_FORM = _(
    "Use the form etcd://127.0.0.1:2379 or etcd://user:password@host:2379/prefix, and percent-encode special "
    "characters in the password, such as %40 for @."
)
ETCD_CORRECT_ACCOUNT = _("Correct the user and the password in the address of etcd (REGATTA_COORDINATION).")
ETCD_LEASE_GONE = _("The lease no longer exists in etcd. Register again.")
ETCD_CERTIFICATES_UNREADABLE = _(
    "The certificates for etcd, {path}, cannot be read: {error}. Correct ca= in the address of etcd."
)
ETCD_CONNECTION_CLOSED = _("The connection to etcd was closed by this process.")
LEASE_OF_KEY_GONE = _("The lease for {key} no longer exists. Register again.")
ETCD_FULL = _("etcd is full and rejects writes. Compact and defragment it, then disarm its alarm (deploy/README.md).")
ETCD_REQUEST_TOO_LARGE = _("etcd does not accept a request of this size. Increase its --max-request-bytes.")
ETCD_TRANSACTION_TOO_LARGE = _("etcd does not accept a transaction of this many keys. Increase its --max-txn-ops.")
ETCD_AUTHENTICATION_OFF = _(
    "Authentication is not enabled in etcd. Enable it, or remove the user from REGATTA_COORDINATION."
)
ETCD_NOT_RESPONDING = _(
    "etcd at {address} did not respond ({why}). Check that it is running and reachable; the request is retried."
)
ETCD_KEEPALIVE_ENDED = _("etcd at {address} ended a keepalive without a response; the request is retried.")
AGENT_ALREADY_RUNNING = _("Another agent runs {replica} in {directory}.")
PASSES_NOT_ALL_RUN = _("The script calls job.steps with passes={passes}: no more of the job's {total} passes are run.")
STOPPED_BEFORE_START = _("was stopped before it started")
OUT_OF_MEMORY = _("ran out of memory")
OUT_OF_MEMORY_REACHED = _("ran out of memory: reached its limit of {limit}")
TOO_MANY_PROCESSES = _("started more than {count} processes and threads")
ERROR_AT = _("{error} in {place}")
FILE_LINE = _("{file} line {line}")
VERSION_OF_PSERVER = _("version {version} of parameter server {server}")
CHECKPOINT_UNUSABLE_THEN = _("Checkpoint {file} ({described}) cannot be used: {why}. {then}")
PASS_DONE_DETAILS = _("Pass {number} of {passes} done in {seconds} s: {details}.")
RECORD_COUNT = _("{count} records")
RECORD_COUNT_ONE = _("{count} record")
RECORDS_PER_SECOND = _("{rate} records/s")
TASKS_SKIPPED = _("{tasks} skipped")
CHECKPOINT_OF_VERSION = _("The checkpoint of version {version}")
NEXT_CHECKPOINT = _("The next checkpoint")
CHECKPOINT_FAILED_CONTINUES = _("{checkpoint} failed: {why}. Training continues.")
PSERVER_RESUMES_FROM_OTHERS = _("Parameter server {server} resumes from version {version} of {count} servers.")
NO_VALUES = _("none")

register("training", globals())
