"""What the platform says, in the reader's language.

Sentences are written in English where and when a thing happens: they are stored, logged, and read by programs. Where a
person reads one, ``told`` finds it in the table below and gives its translation. What is not in the table (a Python
error, a name) stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_noop as _

# ``{word}`` stands for anything that is not empty; what it stands for is looked up in its turn.
SENTENCES: tuple[str, ...] = (
    # How a job goes
    _("Submitted."),
    _("Admitted: the quota is reserved."),
    _("Waiting for quota."),
    _("Waiting to run again."),
    _("{name} asked to run it again."),
    _("Preparing the code."),
    _("Starting the replicas."),
    _("Starting the master, {servers} and {trainers}."),
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
    _("Scaled from {before} to {trainers} by {name}."),
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
    _("A {role} that is lost costs an attempt, and this job has no other (its retries are 0)."),
    _("There is no such field; known are kill and every."),
    _("Name the role to be killed: {names}; or null to end the rehearsal."),
    _("Choose a time of {bounds}, not {length}."),
    _('Say what to rehearse, as in {"kill": "trainer", "every": "10s"}.'),
    _("{least} to {most}"),
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
    _("Task {task} is left out of this pass after {count} failures: {records}."),
    _("The data set {dataset} has no records: there is nothing to train."),
    _("Every task of pass {number} failed more than {most} times: {records} of {dataset}."),
    _("Look at the trainers' logs for the reason."),
    _("No checkpoint could be used; the parameters begin anew."),
    _("Parameter server {server} goes on from version {version}."),
    _("Parameter server {server} goes on from version {version} of {count} servers."),
    _("The checkpoint of version {version} failed: {why}."),
    _("Training goes on."),
    _("The checkpoint of version {version} of parameter server {server} cannot be used: {why}."),
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
    _("{amount} cpu"),
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
    _("This installation does not run {framework} jobs; it runs {names}."),
    # What the portal refuses
    _("The input was refused."),
    _("There is nothing here that you may see. Check the address."),
    _("Your account may not do this."),
    _("Too many requests. Wait a little, then try again."),
    _("Sign in first."),
    _("The request holds a character or a number that cannot be kept. Take out what is not text, and try again."),
    _("There is no such job that you may see."),
    _("There is no such job."),
    _("There is no such job in {namespace}."),
    _("There is no namespace {namespace} that you may see."),
    _("Your role in {namespace} does not allow this ({scope}). Ask one of its owners."),
    _("Only admins of the platform may do this. Ask one of them."),
    _("There is no such token of yours; it may have been revoked already."),
    _("The job has already ended ({state}); there is nothing to cancel."),
    _("The job has not ended ({state}). Cancel it first, or wait for its end."),
    _("The job left no file {name}."),
    _("This is not a regular expression: {problem}."),
    _("This pattern has {count} characters; the limit is {most}."),
    _("Only a job that waits or runs can be scaled; this one is {state}."),
    _('Say how many trainers there shall be, as in {"trainer": 4}.'),
    _("Write a whole number."),
    _("The specification of this job allows {bounds} trainers (its min and max), not {count}."),
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
    return any(pattern.fullmatch(sentence) for pattern, _original in _PATTERNS)


def _translated(sentence: str, language: str) -> str | None:
    for pattern, original in _PATTERNS:
        if found := pattern.fullmatch(sentence):
            values = {name: _told(value, language) for name, value in found.groupdict().items()}
            return _filled(gettext(original), values)
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


def _patterns() -> Iterator[tuple[re.Pattern[str], str]]:
    """The table, those with the most words of their own first: they say most exactly what they mean."""
    for original in sorted(SENTENCES, key=lambda text: -len(_PLACE.sub("", text))):
        pieces = _PLACE.split(original)
        literal = [re.escape(piece) if index % 2 == 0 else f"(?P<{piece}>.+?)" for index, piece in enumerate(pieces)]
        yield re.compile("".join(literal), re.DOTALL), original


_PATTERNS = tuple(_patterns())
