"""What master, parameter servers, coordination store and agents tell, and what a script is told."""

from django.utils.translation import gettext_noop as _

SENTENCES: tuple[str, ...] = (
    _("The log and the metrics were removed {days} days after the job had ended."),
    _(
        "The job has {count} metric names, the most that are kept: points of further names are left out, the first is "
        "{name}. Use one name for each curve, and the step for the place on it."
    ),
    _(
        "{replica} has put {count} events on the timeline, the most that are kept of a replica in one attempt: further "
        "ones are left out. Print what happens often instead; it is in the log then."
    ),
    _("This is no cursor of a timeline. Leave it out for the newest entries."),
    # What the master tells of the trainers
    _("{trainer} joined."),
    _("{trainer} left."),
    _("All {count} passes are done."),
    _("Task {task} failed on {trainer}: {why}"),
    _("Task {task} is overdue on {trainer} and goes to the end of the queue."),
    _("{trainer} has not asked for its tasks for long; others take them over."),
    _("{trainer} left, its task {task} goes back."),
    _("{trainer} left, its tasks {tasks} go back."),
    _(
        "Record {number} ({file}) of {dataset} (task {task}, chunk {chunk}) is left out from now on: "
        "{trainers} could not do it."
    ),
    _("Task {task} is left out of this pass after {count} failures: {records}."),
    _("Task {task} is left out of this pass, for no trainer can read {records} of {dataset}."),
    _(
        "No trainer can read {records} of {dataset}: {why} Restore the file or upload the data set again, then run the "
        "job."
    ),
    _("{file} cannot be read ({error})."),
    _("Numbers that were sent ahead went to another connection; send all of them."),
    _(
        "This process runs release {ours} of the runtime and {replica} runs {theirs}: all processes of a job need the "
        "same. Install one release wherever the job runs, then run it again."
    ),
    _("{file} is not what it was: {error}"),
    _("The data set {dataset} has no records: there is nothing to train."),
    _("No task of pass {number} could be done: {records} of {dataset}."),
    _("Look at the trainers' logs for the reason."),
    _("No checkpoint could be used; the parameters begin anew."),
    _("Parameter server {server} goes on from version {version}."),
    _("Parameter server {server} goes on from version {version} of {count} servers."),
    _("The values of the parameters were lost with all processes that had them."),
    _("Parameter server {server} is back after {seconds} s at version {version}, from its checkpoint."),
    _("Parameter server {server} is back after {seconds} s at version {version}, with {trainer}'s values."),
    _("Its optimiser begins anew: there was no checkpoint yet."),
    _("Until its means have settled, Adam makes larger steps than usual."),
    _("Its optimiser goes on from the checkpoint of version {version}."),
    _("The rows of its tables are those of the checkpoint of version {version}."),
    _(
        "The values of parameter server {server} are lost: no trainer that is left has them, and there are {kept} in "
        "a checkpoint."
    ),
    _("only those of version {version}"),
    _("No process has taken its place for {seconds} s."),
    _("The data goes on in pass {number}; done already: {tasks}."),
    _("{name} could not be given back its values."),
    _("none"),
    _("The next attempt goes on from what all servers have kept together."),
    _("The checkpoint of version {version} failed: {why}."),
    _("Training goes on."),
    _("The checkpoint {file} (version {version} of parameter server {server}) cannot be used: {why}."),
    _("Version {version} is tried next."),
    _("There is no other beside it."),
    _("it is no checkpoint"),
    _("it is cut off after {count} bytes"),
    _("its checksum is wrong"),
    _("it is not the file that was recorded"),
    _("its header claims {count} bytes"),
    _("its header cannot be read ({error})"),
    _("block {block} of array {array} fails its checksum"),
    _("block {block} of array {array} claims {count} bytes"),
    _("Pass {number} of {passes} done in {seconds} s: {records} records, {pace} records/s, {trainers}."),
    _(
        "Pass {number} of {passes} done in {seconds} s: {records} records, {pace} records/s, {trainers}, "
        "without {tasks}."
    ),
    _("{count} task"),
    _("{count} tasks"),
    _("Task {task} is searched for what is wrong in it: {records}."),
    _("record {number} ({file})"),
    _("records {first}-{last} ({file})"),
    _("All {count} passes are done, without what no trainer could do: {records} of {dataset}."),
    _("the script raised {error}"),
    _("This master has been replaced by another; it must not hand out tasks any more."),
    _("Another process has become this job's master; this one starts again and waits for its turn."),
    _("This attempt has begun with {before} and cannot go on with {now}."),
    _("Restore the data set, or start the job again."),
    _("The master broke off in the middle of a change."),
    _("This master is ending. Ask the next one."),
    _("The master does not know {operation}; ask a parameter server."),
    _("The body of {operation} is wrong: {error}."),
    _("No master has answered for {seconds} s: {why}"),
    _("A master answered that has been replaced."),
    _("The master's answer is none that this version knows: {body}."),
    # What the parameter servers refuse
    _("Parameters are float32 or float64, not {types}."),
    _("There is no optimiser {name}; take one of {names}."),
    _("{rule}: {name} must be a number from 0 on, not {value}."),
    _("There is no learning rate schedule {name}; take one of {names}."),
    _("{schedule}: a number of updates is a whole number from 1 on, not {value}."),
    _("{schedule}: a learning rate is a number from 0 on, not {value}."),
    _("A gradient or value holds NaN or infinity; nothing was applied."),
    _("What {sender} sent for tables cannot be read: {error}."),
    _("A table of {sender} cannot be read: {error}."),
    _("{ids} ids but {rows} rows came for table {name} from {sender}."),
    _("Rows of table {name} came from {sender} that live on another parameter server."),
    _("A row of table {name} from {sender} holds NaN or infinity."),
    _("Table {name} on parameter server {server} holds {rows} rows and has no memory for {more} more of {sender}."),
    _("Give the parameter servers more memory, or take more of them."),
    _("Rows cannot begin as {name}; take one of {names}."),
    _("The rows of table {name} have 1 to {most} numbers, not {dim}."),
    _("Another trainer has declared table {name} with {theirs}, this one with {ours}; use the same in all."),
    _("Block {block} of tensor {tensor} does not live on this server."),
    _("Block {block} of tensor {tensor} came as {type}."),
    _("A parameter server does not answer {operation}."),
    _("A step is of 0 samples or more, not {count}."),
    _("The parameters have no values yet; declare them first."),
    _("The parameters have no values yet."),
    _("This connection shares no memory; send the numbers over it."),
    _("{count} blocks came where the {due} of this server are due."),
    _("This process is no member of the job; it must register before it connects."),
    _("The declaration cannot be read: {error}."),
    _("The trainers declared different parameters ({names}); names, shapes and types must be the same in all."),
    _("Another trainer declared mode {theirs}, this one {ours}; use the same in all."),
    _("Another trainer declared {theirs}, this one {ours}; use the same in all."),
    _("This trainer is no longer a member of the job; end it."),
    _("Declare the parameters before giving values."),
    _("A push came outside of a pass."),
    _("Between 1 and {most} parameter servers can share the parameters, not {count}."),
    _("A newer process has written checkpoints for this parameter server; this one has to end."),
    _("Another process is this parameter server now; this one has to end."),
    _("This writer is closed; open another to write more."),
    _("The state in the coordination store is newer than this master's; it has to be read again."),
    _("Another process runs as {replica} now; this one has to end."),
    _("This request belongs to another attempt of a job; its sender should end."),
    _("This process was asked to end while it waited for the master."),
    _(
        "This job runs two versions of the runtime: the peer speaks version {theirs} of the protocol, this "
        "process version {ours}."
    ),
    _("Cancel the job and run it again; all its replicas are then of one version."),
    _(
        "{server} would need {needed} for its part of the parameters ({values} of values, {state} of the "
        "optimiser's state, and room for {copies}) and has {limit}."
    ),
    _("the gradients and a copy for checkpoints"),
    _("the gradients"),
    _("Ask for more memory for role pserver, or for more of them."),
    # What a script is told
    _("{error} in {file} line {line}"),
    _("dist.init() was called before in this process; use the job that it gave."),
    _("A batch has at least one record, not {count}."),
    _("So many batches are read ahead: 0 or more, not {count}."),
    _("This job has its parameters already; put all arrays into one dict."),
    _("Save the model below the output directory, as in save_model('model.npz'), not {path}."),
    _("There are no parameters to save; give a function that writes the model to a path."),
    _('Parameters are a dict of NumPy arrays by name, such as {"w": np.zeros((64, 10), "f4")}.'),
    _("The name of a parameter is a text, not {name}."),
    _("The parameter {name} is a {type}; make it a float32 or float64 array."),
    _("The parameter {name} holds NaN or infinity before training has begun."),
    _("The gradient of {name} is a {type}; push a NumPy array."),
    _("The gradient of {name} has shape {shape}, the parameter {due}."),
    _('The gradient of {name} is {type}, the parameter {due}; convert it with .astype("{wanted}").'),
    _("Gradients are a dict of arrays by parameter name, not a {type}."),
    _("There is no parameter {name}; there are {names}."),
    _("The gradient of {name} is missing; push one for every parameter."),
    _("The ids of table {name} are {type}; give whole numbers (int64)."),
    _("The gradients for table {name} are a {type}; push a NumPy array."),
    _("The gradients for table {name} have shape {shape}; {due} is due."),
    _('The gradients for table {name} are {type}; convert them with .astype("float32").'),
    _("The name of a table is a text that no other table of the job has, not {name}."),
    _("This trainer has no memory for {rows} more rows of table {name}: mode outer keeps those that it changes."),
    _("Give the trainers more memory, or take another mode."),
    _("Table {name} takes init=dist.Uniform(0.05) or the like, and opt=dist.SGD(0.1)."),
    _("The gradient of {name} holds NaN or infinity. Nothing was applied."),
    _("Lower the learning rate, or look for a division by zero or a logarithm of zero in the cost."),
    _("n is the number of samples behind the gradients, at least 1, not {value}."),
    _("report takes numbers; {name} is {value}."),
    _("Left out: {why}."),
    _("This trainer ends: {why}."),
    _("This job's data set is {ours}, the script reads {theirs}; name one in both places."),
    _("Say which data set to read, as in job.reader({example}); known: {names}."),
    _("This process is a {role}; only trainers call dist.init()."),
    _("Call dist.init() before dist.train()."),
    _("The parameter {name} is on {device}; call model.cpu() before it is attached."),
    _("A parameter is {type}; call model.float() before it is attached."),
    _("The processes that this one needs were not all there within {seconds} s; there are: {names}."),
    _("The other processes of this job are out of sight: {why}."),
    # The coordination store
    _("No keepalive was answered in time."),
    _("The coordination store has ended the lease."),
    _("Stands by, and takes over if {replica} is lost."),
    _(
        "Task {task} is under way on {trainer} for {seconds} s, {usual} s is usual: {other} does it too, and whoever "
        "finishes first counts."
    ),
    _(
        "A connection from {host} was refused because its peer did not prove that it belongs to this job; {count} "
        "refused since this process began."
    ),
    _("The coordination store answers again after {seconds} s; tasks are handed out as before."),
    _("{why} Meanwhile trainers do the tasks that they have."),
    _("its registration was removed from the coordination store"),
    _("its lease ran out while it registered"),
    _("This request was meant for a process that has been replaced; register again."),
    _("Numbers came where none are expected: a master takes requests only."),
    _("The master broke off while it answered; it has to be started again."),
    _("The coordination store {path} cannot be opened ({error}). Its directory must exist and be writable."),
    _("The coordination store did not answer ({error}). Try again."),
    _("{address} is no address of a coordination store. Use one like sqlite:///path/to/file or etcd://host:2379."),
    _("The address of etcd cannot be read: {why}."),
    _(
        "Write it like etcd://127.0.0.1:2379 or etcd://user:password@host:2379/prefix, with %40 for an @ in "
        "the password and so on."
    ),
    _("Correct user and password in the address of etcd (REGATTA_COORDINATION)."),
    _("The lease is gone from etcd. Register again."),
    _("The certificates for etcd, {path}, cannot be read: {error}. Correct ca= in its address."),
    _("The connection to etcd has been closed here."),
    _("The lease that should hold {key} is gone. Register again."),
    _("etcd is full and takes no writes. Compact and defragment it, then disarm its alarm (deploy/README.md)."),
    _("etcd takes no request as large as this. Raise its --max-request-bytes."),
    _("etcd takes no transaction of as many keys. Raise its --max-txn-ops."),
    _("etcd does not ask for users. Switch its authentication on, or take the user out of REGATTA_COORDINATION."),
    _("etcd at {address} did not answer ({why}). See that it runs and can be reached; it is asked again."),
    _("etcd at {address} ended a keepalive without an answer; it is asked again."),
    # The agent
    _("Cgroups of jobs could not be prepared in {folder}: {error}."),
    _("This kernel has no Landlock: the trainer can read what its user may read."),
    _("Landlock could not be set up ({error}): the trainer runs without it."),
    _("Another agent runs {replica} in {directory}."),
    _("The script asks job.steps for passes={passes}: no more of the job's {total} are done."),
)
