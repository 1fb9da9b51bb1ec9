"""What the platform says, in the reader's language.

Sentences are written in English where and when a thing happens: they are stored, logged, and read by programs. Where a
person reads one, ``told`` finds it in the table below and gives its translation. What is not in the table (a Python
error, a name) stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_noop as _

# ``{word}`` stands for anything that is not empty, ``{file}`` for one word; what it stands for is looked up in turn.
SENTENCES: tuple[str, ...] = (
    # How a job goes
    _("Submitted."),
    _("Admitted: the quota is reserved."),
    _("Waiting to be admitted."),
    _("Waiting for quota."),
    _("Waiting to run again."),
    _("{name} asked to run it again."),
    _("Preparing the code."),
    _("Starting the replicas."),
    _("Starting the master, {servers} and {trainers}."),
    _("Starting {servers} and {trainers}."),
    _("Starting {trainers}."),
    _("Waiting for the replicas to register."),
    _("All replicas have registered; training."),
    _("Training with {trainers}."),
    _("Training goes on with {left} of {all} trainers; {endings}."),
    _("Trained with {left} of {all} trainers; {endings}."),
    _("Trained with {trainers}."),
    _("Trying again as attempt {number}."),
    _("Trying again as attempt {number}; {more} more try after it."),
    _("Trying again as attempt {number}; {more} more tries after it."),
    _("{count} trainer"),
    _("{count} trainers"),
    _("{count} parameter server"),
    _("{count} parameter servers"),
    _("Training with {left} of {all} trainers; {endings}."),
    _("Training with {left} of {all} trainer; {endings}."),
    _("Training goes on with {left} of {all} trainer; {endings}."),
    _("Scaled from {before} to {replicas} by {name}."),
    _("This takes effect with the next attempt."),
    # How many trainers it has, and why
    _("Starts with {trainers}."),
    _("Waiting for room that is coming free."),
    _("Room is being made: {trainers} of other jobs stop for it."),
    _("Waiting for room: {trainers} and what else it begins with do not fit, even with others at their least."),
    _("Waiting: {job} has waited long for more room than there is, and goes first."),
    _("Grows from {before} to {trainers}: there is room."),
    _("Grows from {before} to {trainers} as soon as others have made room."),
    _("Shrinks from {before} to {trainers}: room for {whom}."),
    _("jobs that have less than their share"),
    _("Shrinks from {before} to {trainers}: more are not allowed, or were measured to be of no use."),
    _("Stops and goes back to the queue: room for {whom}, which has a higher priority."),
    _("Has all {trainers} that it may have."),
    _("Keeps {trainers}: more were measured to be of no use."),
    _("Keeps {trainers}: their number changed a moment ago."),
    _("Keeps {trainers}: there is no room for more."),
    # What a cluster says of a job's pods
    _("This installation has no image to run jobs from. An admin sets REGATTA_REGISTRY or REGATTA_KUBERNETES_IMAGE."),
    _(
        "The processes of the job meet in an etcd, and this installation has none that pods reach. An "
        "admin sets REGATTA_COORDINATION."
    ),
    _("Jobs with requirements need images of their own, and this installation keeps none."),
    _("Leave them out, or ask an admin for a registry."),
    _("The cluster did not do it: {why}"),
    _("The cluster cannot be reached: {why}"),
    _(
        "The cluster has no namespace {name}, or does not know PaddleJobs: {why}. An admin of the cluster "
        "applies deploy/kubernetes."
    ),
    _("The cluster does not let the job be made in its namespace {name}: {why}"),
    _("The cluster refuses the job: {why}"),
    _("The PaddleJob is changed by others all the time; the next look goes on."),
    _("The job's data set has no such file."),
    _("Nothing is begun in this attempt any more."),
    _("{replicas}: its image cannot be pulled: {why}."),
    _("{replicas}: its image is not on the node: {why}."),
    _("{replicas}: the name of its image cannot be read: {why}."),
    _("{replicas}: the registry of its image does not answer: {why}."),
    _("{replicas}: its container cannot be made: {why}."),
    _("{replicas}: its container cannot be started: {why}."),
    _("{replicas}: it finds no node: {why}."),
    _("{replicas}: the cluster refuses it: {why}."),
    _("{replica} was killed: its pod was deleted"),
    _("{replica} is gone: the node ended it ({reason}): {why}"),
    _("{replica} is gone: its pod ended and left no word of how"),
    _("{replica} ran out of memory: the node killed its container"),
    _("{replica} its container was killed"),
    _("{replica} its agent did not start: {why}"),
    _("a job of another namespace"),
    _("Only explained, nothing is changed: {decision}"),
    _("{name} leaves the number of trainers to the platform: {least} to {trainers}."),
    _("{name} sets the number of trainers: the platform leaves it alone from now on."),
    _("Give roles.trainer a max above its min: between them the number of trainers may change."),
    _("Write true or false."),
    _("There is no such mode; known are {names}."),
    _("Elastic jobs have been switched."),
    _("It is not known what there is to share: set the capacity on the page Quotas."),
    _("Another question is being answered. Try again in a few seconds."),
    _("It took too long. Ask about a shorter time."),
    # Connecting a computer
    _("This code was used already, or is older than two minutes. Run `regatta login` again."),
    _("This address was not made by `regatta login`. Run it again."),
    _("This call is signed by a session and not by a token; sign out in the browser instead."),
    # Why a job ends
    _("Training is complete."),
    _("The job was cancelled."),
    _("Cancelled by {name}."),
    _("The training script failed. Its last lines in the log say where."),
    _("A replica used more memory than its limit. Ask for more memory for its role."),
    _("The job ran longer than its timeout. Raise timeout."),
    _("The job's timeout of {length} has passed."),
    _("A replica did not register in time. The script has to call dist.init() early."),
    _("After {count} {unit} {replicas} had not registered."),
    _("The script has to call dist.init() before anything that takes long."),
    _("The requirements could not be installed. The log of replica build says why."),
    _("The code could not be prepared: {error}"),
    _("Too few trainers were left to go on."),
    _("{left} of {all} trainers are left and the job needs {needed}: {endings}."),
    _("The replicas could not be started."),
    _("The replicas could not be started: {error}."),
    _("The processes could not be started: {error}."),
    _("The replicas cannot be started as they were asked for."),
    _("The master or a parameter server ended before training was complete."),
    _("All processes of the attempt were gone."),
    _("All {count} processes of the attempt are gone and left no word of how they ended."),
    _("The portal was stopped while the job ran."),
    _("The portal was stopped."),
    _("The script ended without an error, but it never called dist.init(): the platform trained nothing."),
    _("The coordination store cannot be used."),
    # How a process ends; these stand within the sentences above
    _("{replica} exited with code {code}, before training was complete."),
    _("{replica} exited with code {code}: {error}, before training was complete."),
    _("{replica} was ended by {signal}, before training was complete."),
    _("{replica} ran out of memory (limit {limit}), before training was complete."),
    _("{replica} is gone, before training was complete."),
    _("{replica} is gone: {how}, before training was complete."),
    _("{replica} exited with code {code}."),
    _("{replica} exited with code {code}: {error}."),
    _("{replica} was ended by {signal}."),
    _("{replica} ran out of memory."),
    _("{replica} ran out of memory (limit {limit})."),
    _("{replica} out of memory: used {used} of {limit}."),
    _("{replica} is gone."),
    _("{replica} has registered."),
    _("{replica} is back after {length} s."),
    _("{replica} was killed for the rehearsal; back after {length} s."),
    _("{replica} was asked to stop."),
    _("{replica} is gone: {how}."),
    _("{replica} exited with code {code}"),
    _("{replica} exited with code {code}: {error}"),
    _("{replica} was ended by {signal}"),
    _("{replica} ran out of memory (limit {limit})"),
    _("{replica} is gone"),
    _("{replica} is gone: {how}"),
    _("exited with code {code}"),
    _("exited with code {code}: {error}"),
    _("was ended by signal {signal}"),
    _("ran out of memory (limit {limit})"),
    _("out of memory: used {used} of {limit}"),
    _("used more than its {seconds} s of CPU time"),
    _("was ended because its attempt is over: {why}"),
    _("was asked to stop"),
    _("lost its place in the job: {why}"),
    _("its agent is gone and left no word of how the process ended"),
    _("{count} hour"),
    _("{count} hours"),
    _("{count} minute"),
    _("{count} minutes"),
    _("{count} second"),
    _("{count} seconds"),
    _("hour"),
    _("hours"),
    _("minute"),
    _("minutes"),
    _("second"),
    _("seconds"),
    _("{first} and is started again; {rest}"),
    _("{ending} and is started again"),
    _("{endings}; {replicas} is joining"),
    _("{endings}; {replicas} are joining"),
    _("{replicas} is joining"),
    _("{replicas} are joining"),
    _("trainer-{others} and trainer-{last}"),
    _("{ending}; started again ({number} of {most})."),
    _("{ending}; started again ({how})."),
    _("as it was rehearsed"),
    # A rehearsal of failure
    _("{replica} is killed: {name} rehearses failure ({number} of {most})."),
    _("{name} rehearses failure: every {length} a {role} is killed."),
    _("{name} ends the rehearsal."),
    _("Only the owner of a job may rehearse its failure."),
    _("Only a job that waits or runs can rehearse failure; this one is {state}."),
    _("Failure can be rehearsed where jobs run as processes of one machine, and not here."),
    _("There is no such field; known are kill and every."),
    _("Name the role to be killed: {names}; or null to end the rehearsal."),
    _("Choose a time of {least} to {most}, not {length}."),
    _('Say what to rehearse, as in {"kill": "trainer", "every": "10s"}.'),
    _("it was dismissed before it was started"),
    _("the backend knows nothing of it any more"),
    _("signal {number}"),
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
    # Quota
    _("It fits and would start at once."),
    _("Needs {needed}; {free} of {limit} are free in `{namespace}`: {held} are held by running jobs."),
    _("Needs {needed}; {free} of {limit} are free: {held} are held by running jobs."),
    _("Needs {needed}; the limit in `{namespace}` is {limit}, so it can never start."),
    _("Needs {needed}; the limit is {limit}, so it can never start."),
    _("Ask for less, or an admin for more."),
    _("Needs {needed}; {free} of {limit} are free on the platform: {held} are held by running jobs."),
    _("Needs {needed}; the limit on the platform is {limit}, so it can never start."),
    _("The job has been deleted, with all that it kept."),
    _("Your account has no e-mail address; give it one first."),
    _("Write the e-mail address to which the letter goes."),
    _("The letter could not be sent: {why}"),
    _("This needs {needed} of storage; {free} of {limit} are left in `{namespace}`."),
    _("This needs {needed} of storage; {free} of {limit} are left on the platform."),
    _("Artifacts keep {amount}."),
    _("Checkpoints keep {amount}."),
    _("Logs and metrics keep {amount}."),
    _("Code keeps {amount}."),
    _("Data sets keep {amount}."),
    _("The most is kept by the artifacts of `{name}`: {amount}."),
    _("The most is kept by the checkpoints of `{name}`: {amount}."),
    _("The most is kept by the log and the metrics of `{name}`: {amount}."),
    _("The most is kept by the code of `{name}`: {amount}."),
    _("The most is kept by the data set `{name}`: {amount}."),
    _("Delete what nobody needs any more, or ask an admin for more."),
    _("Delete what nobody needs any more, and tell an admin."),
    _("{amount} of storage is kept already."),
    _("Nothing is deleted; nothing more is taken."),
    _("Say how long the file is, in the header Content-Length."),
    _("May use {needed} until its timeout; {free} of {limit} are left this month in `{namespace}`."),
    _("Shorten the timeout, wait for the next month, or ask for more."),
    _("There is room for it, but it would take that from a job that has waited longer."),
    _("Waiting for its turn."),
    _("What others have borrowed is called back for it."),
    _("{count} job is before it."),
    _("{count} jobs are before it."),
    _("More than {count} jobs are before it."),
    _("It starts by {when} UTC, unless a job with precedence comes."),
    _("It ran on capacity that `{namespace}` had lent and needs now."),
    _("It ran on capacity that others had lent and need now."),
    _("Say why, in 1 to {count} characters; it is kept in the trail."),
    _("There is no such resource. Choose from: {names}."),
    _("Name at least one of: {names}."),
    _("Write a number, or null for the default."),
    _("A limit cannot be below zero."),
    _("That is more than any machine has. Write a smaller number, or null for the default."),
    _("Say how much you need."),
    _("A request of this namespace is open already. Withdraw it, or wait for its answer."),
    _("There is no such request that you may see."),
    _("This request has been answered already ({state})."),
    _("Write a number, such as 16 or 0.5; leave it empty for none."),
    _("Say of which resource you need how much."),
    _("Running jobs hold more than that now: {amounts}. They keep it; nothing new starts until it fits."),
    _("There is no account {name}."),
    _("This account waits to be confirmed or approved; it opens by that."),
    _("You cannot take this from your own account. Ask another admin."),
    _("{name} is the last admin. Make somebody else an admin first."),
    _("You can look at the portal as any open account that is no admin's."),
    _("You look at the portal as yourself."),
    _("You look at this as {name}: nothing can be changed. Be yourself again first."),
    _("{amount} cpu"),
    _("{amount} gpu"),
    _("{amount} cpu-hours"),
    _("{amount} gpu-hours"),
    _("{amount} of storage"),
    _("{amount} of memory"),
    _("{amount} running job"),
    _("{amount} running jobs"),
    # Fields of a specification
    _("A specification is a mapping of fields such as name, files and roles."),
    _("There is no field of this name."),
    _("Did you mean {name}?"),
    _("Known are {names}."),
    _("Write text here."),
    _("{value} does not do: write a whole number from {least} to {most}."),
    _("{value} is not known. Choose one of {names}."),
    _("Write a mapping of names to values here."),
    _("Give the job a name, such as digits."),
    _(
        "{value} cannot be a name. Write up to 63 small letters, digits and hyphens, "
        "with a letter or digit at both ends, such as {proposal}."
    ),
    _("Write a time between {least} and {most}."),
    _("{least} is more than the {count} replicas that the job starts with."),
    _("{most} is less than the {count} replicas that the job starts with."),
    _("Write a number of cores from 0.01 to 1024."),
    _("A replica needs at least {least} to start; ask for that much."),
    _("{value} is no amount of memory: write a number with Ki, Mi, Gi (or k, M, G), such as 512Mi."),
    _("{value} is no number of cores: write a number such as 1, 0.5 or 500m."),
    _("{value} is no length of time: write a number with s, m, h or d, such as 90s or 1h."),
    _("Add at least the entrypoint, such as train.py."),
    _("These are {count} files; at most {most} are taken."),
    _("Together they have {size} bytes; at most {most} are taken."),
    _("It has {size} bytes; a file may have {most}. Put data into a data set."),
    _("{folder} is a file; it cannot be a folder too."),
    _("{value} is no Python file; name one that ends in .py."),
    _("{value} is not among the files: there is {names}."),
    _("Line {line}, column {column}: {problem}."),
    _("The content is no text."),
    _("The content cannot be written as UTF-8."),
    _("A file's name has 1 to 200 printable characters."),
    _("Write the path relative to the job's folder, with / between its parts and without . or .. as a part."),
    _("One part of the path is too long."),
    _("{name} would hide the platform's own module runtime; choose another name."),
    _("Write one requirement of at most 300 characters on one line."),
    _("It is no YAML: {problem}"),
    _("There is no mode {value}; take sync, async, m_of_n(2), ssp(3) or outer(100)."),
    _("The number of {mode} is at least {least}, not {number}."),
    _("{value} is no framework. This installation runs {names}."),
    _("A {framework} job has no parameter servers. Leave them out."),
    _("A {framework} job has no master. Leave this out."),
    _("The trainers of a {framework} job meet once, at the start, and all have to be there."),
    _("Leave this out, or write {number}."),
    _("The requirements do not name {package}, which a {framework} job imports."),
    _("Add it, such as {requirement}."),
    # What the portal refuses
    _("The input was refused."),
    _("There is nothing here that you may see. Check the address."),
    _("Your account may not do this."),
    _("Too many requests. Wait a little, then try again."),
    _("Too many requests. Wait {seconds} s, then try again."),
    _("Sign in first."),
    _("The request holds a character or a number that cannot be kept. Take out what is not text, and try again."),
    _("There is no such job that you may see."),
    _("There is no such job."),
    _("There is no such job in {namespace}."),
    _("There is no namespace {namespace} that you may see."),
    _("Your role in {namespace} does not allow this ({scope}). Ask one of its owners."),
    _("Only admins of the platform may do this. Ask one of them."),
    _("There is no such token of yours; it may have been revoked already."),
    # Accounts, namespaces, tokens
    _("This token does not allow this ({scope}). Make one with that scope."),
    _("There is no such session of yours; it may have ended already."),
    _("You have {count} tokens. Revoke those that you no longer use."),
    _("There is no scope {name} here. Known are {names}."),
    _("Write a whole number of days from 1 to {most}."),
    _("Choose how long the token shall be good."),
    _("Give the token a name of at most 100 characters."),
    _("{name} does not do. Use up to 63 small letters, digits and dashes, with a letter or digit at both ends."),
    _("A service token is a viewer or a developer."),
    _("There is, or was, a service token {name} in {namespace}. Choose another name."),
    _("There is no such service token in {namespace}; it may have been revoked already."),
    _("There is no account {name}. An admin can open one."),
    _("{name} is no member of {namespace}."),
    _("This is the account's own namespace: its owner stays."),
    _("{name} is the last owner of {namespace}. Make somebody else an owner first."),
    _("{namespace} is a personal namespace, which stays with its account."),
    _("You are no owner of {namespace}, so there is nothing that you could hand over."),
    _("You own it already. Choose another member."),
    _("Choose a role: viewer, developer or owner."),
    _("Write the name of the namespace exactly, to show that you mean it."),
    _("{namespace} stays open: {count} of its jobs have not ended. Cancel them or wait for their end, then close it."),
    _("There is no account {name}, and it is no e-mail address. Write one or the other."),
    _("You cannot invite yourself."),
    _("{name} is a member of {namespace} already. Change the role in the list of members."),
    _("There is an open invitation already. Withdraw it first, then invite anew."),
    _("There are {count} open invitations. Withdraw some first."),
    _("There is no such open invitation in {namespace}."),
    _("There is no such invitation; it may have been withdrawn. Ask who invited you for another one."),
    _("This invitation has been answered already."),
    _("This invitation ended on {day}. Ask {name} for another one."),
    _("The name or the password is wrong."),
    _("Too many attempts to sign in. Wait {seconds} s, then try again."),
    _("Confirm your e-mail address first: open the link in the letter that we sent you."),
    _("An admin has to let you in first. You get a letter when that is done."),
    _("You took too long. Sign in with your password again."),
    _("Set up your second factor first, on the page of your account."),
    _("This account has a second factor. Send a code of it as well, as code."),
    _("You have a second factor. Switch it off before you set up another one."),
    _("This is not the code that the app shows now. Try the next one."),
    _("The code is wrong, or it was used already. Wait for the next one."),
    _("Too many wrong codes. Wait half a minute, then try again."),
    _("You have no second factor."),
    _("Admins need a second factor here. Ask another admin to switch yours off if you lost it."),
    _("Nobody can open an account by themselves here. Ask an admin."),
    _("Write your e-mail address: the letter goes there."),
    _("This link has been used, or is too old. Begin anew."),
    _("This is not a whole link. Copy all of it from the letter."),
    _("This is not the password that the account was opened with."),
    _("This is not your present password."),
    _("No account {name} waits to be let in."),
    _("There is such an account in other capital letters. Choose another name."),
    _("Another account has this e-mail address."),
    _("There is no such connection of your account."),
    _("This is the only way into your account. Connect another one first."),
    _("The job has already ended ({state}); there is nothing to cancel."),
    _("The job has not ended ({state}). Cancel it first, or wait for its end."),
    _("The job left no file {name}."),
    _("This is not a regular expression: {problem}."),
    _("This pattern has {count} characters; the limit is {most}."),
    _("Only a job that waits or runs can be scaled; this one is {state}."),
    _('Say how many replicas there shall be, as in {"trainer": 4} or {"pserver": 2}.'),
    _("Write a number from {least} to {most}."),
    _("The job has succeeded: there is nothing to go on with. Clone it to train anew."),
    _("Write a whole number."),
    _("The specification of this job allows {bounds} trainers (its min and max), not {count}."),
    _("The specification of this job allows {least} to {most} trainers (its min and max), not {count}."),
    # Why a job ends, further
    _("{ending}, before training was complete."),
    _("{ending}, and the others cannot go on without it."),
    _("Trainers begin when all parameter servers listen; the log of the servers says why they do not."),
    _("there are no {count} free ports in a row from {first} to {last} on this machine"),
    _("This job has no parameter servers."),
    _("Clone it to give it some."),
    _("Nothing of this job can be replaced while it runs, so there is no survival to rehearse."),
    _("The environment could not be made: {error}."),
    _("Installing took more than {count} minutes and was stopped."),
    # What keeps an image of a job from being made
    _("Making the image took more than {count} seconds and was stopped."),
    _("Installing took more than {count} seconds and was stopped."),
    _("Images cannot be made on this machine: buildah is not installed. Tell an admin."),
    _("Images cannot be made on this machine: {error}. Tell an admin."),
    _("The requirements take more than the {size} GiB that an image may have. Ask for fewer."),
    _("The base image has Python {version}; jobs need {least} or newer. Set another base image."),
    _("The base image cannot run the platform's processes: {error}"),
    _("The base image could not be had: {error}"),
    _("The image could not be set up: {error}"),
    _("The image could not be kept: {error}"),
    _("The image could not be pushed: {error}"),
    _("The image could not be made: {error}"),
    _("The image registry {host} could not {task} (it answered {status})."),
    _("The image registry {host} refuses to {task}: its credentials do not allow it ({status})."),
    _("The image registry {host} cannot be reached: {error}."),
    _("The cluster does not let the image be made: {error}"),
    # What keeps a namespace from being on the cluster as it should
    _("The job's namespace could not be made on the cluster: {error}"),
    _("What jobs may reach is set wrongly: {error}"),
    _(
        "The cluster has a namespace {name} that this portal did not make. An admin gives it the label {label} and "
        "{other}, or sets another REGATTA_KUBERNETES_PREFIX."
    ),
    # What the master tells of the trainers, further
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
    # Data
    _("Known are: {names}."),
    _("None is installed."),
    _("{path} cannot be read ({error}). Upload the data set again."),
    _("{path} does not describe a data set ({error}). Upload it again."),
    _("A chunk is at least {least} bytes long, this one has {count}."),
    _("The chunk announces {announced} bytes and has {count}."),
    _("The chunk is damaged: its checksum does not fit. Restore the file from its source."),
    _("{path} ends inside the chunk at {offset}; it has been cut short since it was listed."),
    _("{where}: the file ends inside a chunk's header. It was cut short; copy it again."),
    _("{where}: the file ends inside this chunk. It was cut short; copy it again."),
    _("The chunk announces {announced} records and has {count}."),
    _("The chunk unpacks to more than {most} bytes; write smaller chunks."),
    _("The chunk's gzip data does not end where the chunk does."),
    _("The chunk's gzip data is damaged ({error})."),
    _("No chunk begins here: found {found} where {due} is due."),
    _("The chunk is damaged: a record is longer than what is left of the chunk."),
    _("A record is at least {least} bytes long, this one has {count}."),
    _("This is no record of features and label (version {version}, kind {kind})."),
    _("A record ends inside its shape."),
    _("A record of shape {shape} has {due} bytes, this one {count}."),
    _("There are no records to stack."),
    _("Data can be written as {names}, not as {name}."),
    _("There can be 1 to {most} shards, not {count}."),
    _("{prefix} cannot begin the name of a file. Use letters, digits and hyphens."),
    _("{path} exists already. Choose another folder or prefix, so that nothing is overwritten."),
    _("Record {number} cannot be written as {format}: {error}"),
    _("it is no bytes and no text but a {kind}. Write it as values."),
    _("The name {name} leads out of its folder. Give the sample another key."),
    _("{where}: the file has changed since it was listed. List it again."),
    _("{where}: {size} bytes cannot be read at once; at most {most} are taken."),
    _("{where}: this is no file of np.savez ({error}). Save it again."),
    _("{where}: this is no array of NumPy ({error}). Save it again."),
    _("{where}: the array holds Python objects, which are not read. Save numbers or text."),
    _("{where}: the array lies column by column. Save np.ascontiguousarray(array)."),
    _("{where}: the array has no rows. Save one with at least one dimension."),
    _("{where}: the rows of the array are empty. Save rows that hold something."),
    _("{where}: the file ends inside the array. It was cut short; copy it again."),
    _("{where}: the arrays have different numbers of rows ({counts}). Save those of one length."),
    _("{where}: a quote is opened here or later and never closed."),
    _("{where}: this is no CSV ({error}). Correct the row, or quote it."),
    _("{where}: the row has {count} cells where the first row names {due}."),
    _("{where}: {line} is no relative path with a TAB and a label after it. Correct the line."),
    _("{where}: {name} is no file in the folder of the list. Put the file itself there."),
    _("{path} names {name}, which cannot be read ({error}). Upload the data set again."),
    _("{where}: the text is not UTF-8 ({error}). Save it as UTF-8."),
    _("{where}: no line ends here for {most} bytes; is this text?"),
    _("{where}: this line is no JSON ({error}). Correct it, or leave it out."),
    _("{where}: this row group cannot be read ({error}). Restore the file."),
    _("{where}: this is no Parquet file, or a damaged one ({error}). Restore the file."),
    _("The chunk is not the one that was listed: the file has changed since. List it again."),
    _("{path} is of no format that is known here. Names end in {known}; or say which format it is."),
    _("There is no format {name}."),
    _("{path} is packed with {packing}, so that it cannot be read in pieces. Unpack it first."),
    _("{where}: no TFRecord begins here. The file is damaged, or of another format."),
    _("{where}: the file ends inside this record. It was cut short; copy it again."),
    _("{where}: the record is damaged: its checksum does not fit. Restore the file."),
    _("{where}: no member of a tar file begins here. The file is damaged, or of another format."),
    _("{where}: {size} bytes about one member are too many; {most} are taken."),
    _("{where}: the next member is {kind}. Put the file itself into the tar file."),
    _("{where}: {name} is {kind}. Put the file itself into the tar file."),
    _("a link"),
    _("a device"),
    _("a pipe"),
    _("a sparse file"),
    _("{where}: the size of this member is no number. Restore the file."),
    _("{path}: the sample {key} has two members {name}. Name its members apart."),
    _("{where}: the file ends inside this member. It was cut short; copy it again."),
    _("{where}: the name {name} leads out of its folder. Pack with relative names."),
    _("{where}: the header about the next member is damaged. Restore the file."),
    _("{where}: {name} is of the unknown type {kind}. Pack it with tar --format=pax."),
    _("{purpose} needs the package {package}: put it among the requirements of the job, or install it."),
    _("Reading Parquet"),
    _("The chunk announces {count} records and has room for {most}."),
    _("The chunk is damaged: its {count} records end at {end} of its {size} bytes."),
    _("The chunk names compressor {number}; known are {known}."),
    _("{where}: the chunk announces {size} bytes; at most {most} are taken."),
    _("The chunk's snappy data is damaged ({error})."),
    _("A record has at most {most} bytes, this one has {count}."),
    _("compressor is one of {names}, not {name}."),
    _("A {kind} cannot be a record. Write numbers, text, bytes, arrays, or dicts of them."),
    _("An array of {kind} cannot be a record. Write arrays of numbers or text."),
    _("This cannot be a record ({error}). Write plain values without circles."),
    _("This is no record of values; read it as bytes, or as features and label."),
    _("A record of values is damaged ({error}). Restore the file from its source."),
    # The coordination store
    _("No keepalive was answered in time."),
    _("The coordination store has ended the lease."),
    _("Stands by, and takes over if {replica} is lost."),
    _(
        "Task {task} is under way on {trainer} for {seconds} s, {usual} s is usual: {other} does it too, and whoever "
        "finishes first counts."
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
    _("This kernel has no Landlock: the trainer can read what its user may read."),
    _("Landlock could not be set up ({error}): the trainer runs without it."),
    _("Another agent runs {replica} in {directory}."),
    # Fields of a specification, further
    _("The body is nested too deeply."),
    _("It is nested too deeply."),
    _("It is larger than {size} MiB."),
    _("YAML aliases (*name) are not taken; write the value out."),
    _("Options of pip are not taken here, only requirements such as pandas==2.3.3."),
    _("Addresses are not taken here; name a released package, such as pandas==2.3.3."),
    _("{value} is no pip requirement. Write a name and perhaps a version, such as pandas==2.3.3."),
    _("Write a list of pip requirements, such as [pandas==2.3.3]."),
    _("A variable's name has letters, digits and underscores and does not begin with a digit."),
    _("Names that begin with {prefix} belong to the platform; choose another."),
    _('The value is no text; put it in quotes: "{value}".'),
    _("The value holds a character that no environment variable may have."),
    _("The value is longer than {size} KiB."),
    _("These are {count} {things}; at most {most} are taken."),
    _("requirements"),
    _("variables"),
    _("Together they are longer than {size} KiB. Put data into a file."),
    _("Write the program and its arguments, such as [sh, train.sh]."),
    # What the portal refuses, further
    _("There is no state {state}. Known are {names}."),
    _("The key {key} was used for another job ({job}). Use a fresh key for each job."),
    _("This pattern takes too long on these lines. Make it simpler: avoid nested repeats such as (a+)+."),
    _("A pattern cannot hold the character NUL; write \\x00."),
    # Why a version of a data set cannot be sealed, and why jobs read no records of a file
    _("It is of no format that is known here: it is kept as it is, and jobs read no records of it."),
    _(
        "It is packed as a whole: it is kept as it is, and jobs read no records of it. Unpack it and upload it again "
        "to train on it."
    ),
    _("It is text beside files of another format: it is kept as it is, and jobs read no records of it."),
    _("It is not of the format of this data set: it is kept as it is, and jobs read no records of it."),
    _("{path} is not whole as {format}: {why}"),
    _("{path}, offset {offset}: the version has more than {count} chunks. Write larger ones, of some MiB each."),
    _(
        "{path}, chunk at {offset}: it names {name}, which is no file of this version. Upload it too, or take the "
        "line out."
    ),
    _(
        "{path} is {format}, which this portal cannot read: its operator has to install {package}. Seal the version "
        "again after that, or make a data set with the format 'files', which keeps all as it is."
    ),
    _("Looking through its files was begun {tries} times and never came to an end. Ask the operator of the portal."),
    _("The files could not be read from the storage. Seal the version again, or ask the operator."),
    # What is told about data sets
    _("The version has been deleted."),
    _("The file has been taken out."),
    _("The data set has been deleted. Until its grace is over it can be restored."),
    _("Who reads it has been changed."),
    _("The data set is back."),
    _("The description has been changed."),
    _("The file has {size} bytes; the range begins behind them."),
    _("The first records lie in a chunk of {size} bytes; a preview reads up to {most}."),
    _("Its first records take more than {most} to read, so nothing is shown."),
    _("{amount} of memory or {seconds} s"),
    _("There is no preview of version {number}; it is made when it is sealed."),
    _("{path} cannot be the path of a file: {why}."),
    _("it must be relative"),
    _("it names no file"),
    _("'..' leads out of the data set"),
    _("it holds a backslash; write / between folders"),
    _("it holds a character that cannot be seen"),
    _("a name in it begins with a dot"),
    _("a name in it begins or ends with a space"),
    _("it is longer than {count} characters"),
    _("it lies more than {count} folders deep"),
    _("a name in it has more than {count} bytes"),
    _("There is no data set {name} that you may see. Check the name; deleted ones are gone after their grace."),
    _("You may read {name} and not change it. Ask somebody of {namespace}."),
    _("{name} has no version {number} that you may see."),
    _("Version {number} of {name} has no such file. Announce it again."),
    _("Version {number} of {name} has no file {path}."),
    _("There is a data set {name} already. Add a version to it, or choose another name."),
    _("{name} was deleted and its grace is not over. Restore it, or choose another name."),
    _("{name} has been deleted. Restore it first."),
    _("Write up to {count} characters."),
    _("Choose one of: {names}; or leave it out."),
    _("Choose one of: {names}."),
    _("{count} files of version {number} are not whole yet, such as {path}. Go on with the upload, or take them out."),
    _("Version {number} has no files. Upload some first."),
    _("There is no namespace {name}. Check the name."),
    _("It can be shared with {count} namespaces at most."),
    _("The part has more than its {size} bytes."),
    _("The part has another checksum than was announced: it was damaged on its way. Send it again."),
    _("The part ended {size} bytes early. Send it again."),
    _("The part did not come whole: {why}. Send it again."),
    _("The part could not be written: {why}. Ask the operator of the portal."),
    _("The portal's disk is full. Tell its operator, then go on with the upload."),
    _("The parts cannot be read: {why}. Send the file again."),
    _("Part {number} has {size} bytes; {count} were announced."),
    _("Version {number} is still being filled. Seal it first."),
    _("Version {number} is being sealed. Wait for the end of it, or begin another version."),
    _("Version {number} is sealed and never changes. Begin another version."),
    _("Version {number} could not be sealed. Mend it, then seal it again."),
    _("Version {number} has been deleted. Begin another version."),
    _("The storage holds nothing under {key}. It may have been deleted."),
    _("{key} could not be {deed}: {why}."),
    _("{key} could not be {deed}: {why}. Ask the operator of the portal."),
    _("{key} could not be {deed}: the disk is full. Delete what you can spare."),
    _("written"),
    _("deleted"),
    _("read"),
    _("{path} was taken out, or begun anew, while it was being uploaded. Announce it again."),
    _(
        "{path} as it came has another checksum than was announced: it was changed while it was sent, or damaged. "
        "Send it again from the first part."
    ),
    _("{missing} of the {count} parts of {path} are not there yet. Send them."),
    _("A file has from 0 to {most} bytes."),
    _("Write the SHA-256 as 64 small hexadecimal digits."),
    _(
        "Version {number} has a file {path} already, with {size} bytes and other content or another spelling. Take "
        "that one out first, or give this one another path."
    ),
    _("{path} cannot lie beside {other}: one name would be a file and a folder."),
    _("{path} is being made whole, or was begun anew: no part of it is taken now."),
    _("{path} has {count} parts, counted from 0; there is no part {number}."),
    _("A version has {most} files at most. Pack small ones together."),
    _("Send the part's {kind} as {digits} small hexadecimal digits."),
    _("The parts of {path} have changed. Announce it again."),
    _("Send the file's SHA-256 as 64 small hexadecimal digits."),
    # The types of columns
    _("empty"),
    _("boolean"),
    _("integer"),
    _("number"),
    _("text"),
    _("bytes"),
    _("list"),
    _("object"),
    # Data sets of jobs
    _("The data set could not be laid out: {error}"),
    _("{name} has been deleted for good. Clone the job and choose another data set."),
    _("The data set of {name} has been deleted. Restore it, or clone the job and choose another one."),
    _("{name} has been deleted. Clone the job and choose another version."),
    _(
        "Version {number} of {name} has no records that a job can read: its files are of no format that is known "
        "here. Upload them in one of those that docs/formats.md lists."
    ),
    _("{name} has no sealed version {number}."),
    _("{name} has no sealed version."),
    _("{name} is not shared with {namespace}. Ask somebody of {owner} to share it, or submit the job there."),
    _("There is no data set {name} that a job of {namespace} may use. Did you mean {near}?"),
    _("There is no data set {name} that a job of {namespace} may use. Known are: {names}."),
    _("No file of {name} is of a format that is known here. Names end in {suffixes}."),
    _("The records of a batch differ in how many values they have. Give the reader decode=."),
    _("The newest is {number}."),
    _("Fill one and seal it first."),
    _("These records have no form as CSV. Ask for format=raw, or read the chunks' files."),
    # The storage in a bucket
    _("The storage is S3, which needs boto3: pip install -r requirements-s3.txt."),
    _("{key} could not be kept: the bucket is full. Delete what you can spare."),
    _("The storage refused {key} ({error}). Ask the operator of the portal."),
    _("The storage cannot be reached ({error}). Try again, or ask the operator."),
    _("The portal's disk is full. Tell its operator, then try again."),
)

_PLACE = re.compile(r"\{(\w+)\}")
# Where one sentence may end and the next begin.
_JOINT = re.compile(r"(?<=[.;:?]) ")


def told(sentence: str) -> str:
    """The sentence in the language that is active now."""
    language = get_language() or "en"
    return sentence if language.startswith("en") else _told(sentence, language)


def told_all(errors: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The sentences of refused fields."""
    return {field: [told(sentence) for sentence in sentences] for field, sentences in errors.items()}


def told_job(document: Mapping[str, Any]) -> dict[str, Any]:
    """A job's document (``why`` of the job and of its ``replicas``) for a reader."""
    replicas = [{**replica, "why": told(replica["why"])} for replica in document["replicas"]]
    return {**document, "why": told(document["why"]), "replicas": replicas}


@lru_cache(maxsize=4096)
def _told(sentence: str, language: str) -> str:
    # The language is the key under which the answer is kept; gettext takes the active one.
    for way in (_as_sentences, _translated, _in_parts):
        if (found := way(sentence, language)) is not None:
            return found
    return sentence


def _as_sentences(sentence: str, language: str) -> str | None:
    """Cut where one known sentence ends and another begins, before a place of the first swallows the second."""
    for full_stop in re.finditer(r"\.(?= )", sentence):
        head, tail = sentence[: full_stop.end()], sentence[full_stop.end() + 1 :]
        if _known(head) and _known(tail):
            return _joined(_told(head, language), _told(tail, language))
    return None


def _known(sentence: str) -> bool:
    return any(pattern.match(sentence) for pattern in _PATTERNS)


def _translated(sentence: str, language: str) -> str | None:
    for pattern in _PATTERNS:
        if found := pattern.match(sentence):
            values = {name: _told(value, language) for name, value in found.groupdict().items()}
            return _filled(gettext(pattern.original), values)
    return None


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: values[place[1]], text)


def _in_parts(sentence: str, language: str) -> str | None:
    """The longest beginning or else the longest end that is known, and the rest in its turn."""
    joints = [joint.start() for joint in _JOINT.finditer(sentence)]
    for at in reversed(joints):
        if (head := _translated(sentence[:at], language)) is not None:
            return _joined(head, _told(sentence[at + 1 :], language))
    for at in joints:
        if (tail := _translated(sentence[at + 1 :], language)) is not None:
            return _joined(sentence[:at], tail)
    return None


def _joined(head: str, tail: str) -> str:
    return head + ("" if head.endswith(("。", "；", "？")) else " ") + tail


@dataclass(frozen=True)
class _Pattern:
    """A sentence of the table. What it says of its own is looked for first: that is quick, and seldom there."""

    original: str
    words: tuple[str, ...]  # what is between its places, with what is before the first and after the last
    expression: re.Pattern[str]

    def match(self, sentence: str) -> re.Match[str] | None:
        if not (sentence.startswith(self.words[0]) and sentence.endswith(self.words[-1])):
            return None
        return self.expression.fullmatch(sentence) if all(word in sentence for word in self.words) else None


def _pattern(original: str) -> _Pattern:
    pieces = _PLACE.split(original)
    literal = [re.escape(piece) if index % 2 == 0 else _place(piece) for index, piece in enumerate(pieces)]
    return _Pattern(original, tuple(pieces[::2]), re.compile("".join(literal), re.DOTALL))


def _place(name: str) -> str:
    """Anything, but a file is one word: where it stands between others, it does not take theirs."""
    return rf"(?P<{name}>\S+?)" if name == "file" else f"(?P<{name}>.+?)"


# Those with the most words of their own first: they say most exactly what they mean.
_PATTERNS = tuple(map(_pattern, sorted(SENTENCES, key=lambda text: -len(_PLACE.sub("", text)))))
