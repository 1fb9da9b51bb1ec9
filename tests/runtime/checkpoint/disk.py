"""A directory in memory that loses unsynced data when it crashes, at a step that the test chooses."""

import io


class Crash(BaseException):
    """The machine is gone; nothing handles this."""


class CrashingDisk:
    """``steps`` counts the operations; the one with number ``crash_at`` is the last and happens ``half``-way."""

    def __init__(self):
        self.steps = []
        self.crash_at = None
        self._written = {}
        self._synced = {}
        self._named = set()

    def step(self, what):
        """Count one more step of the program under test."""
        self.steps.append(what)
        if self.crash_at is not None and len(self.steps) > self.crash_at:
            raise Crash(what)

    def power_cut(self):
        """What is left: synced bytes (and half of the rest of a file that was being written) of known names."""
        for name in list(self._written):
            if name not in self._named:
                del self._written[name]
            elif (synced := self._synced.get(name, 0)) < len(data := self._written[name]):
                self._written[name] = data[: synced + (len(data) - synced) // 2]
        self.steps, self.crash_at = [], None

    def damage(self, name, change):
        self._written[name] = change(self._written[name])

    # --- Files -------------------------------------------------------------------------------------------------------
    def create(self, name):
        assert name not in self._written
        self._written[name] = b""
        self.step("create")
        return _Draft(self, name)

    def sync_directory(self):
        self.step("sync directory")
        self._named = set(self._written)

    def open(self, name):
        if name not in self._written:
            raise FileNotFoundError(2, "No such file or directory")
        return io.BytesIO(self._written[name])

    def delete(self, name):
        self._written.pop(name, None)
        self.step("delete")

    def names(self):
        return sorted(self._written)

    def append(self, name, data):
        self._written[name] += bytes(data)
        self.step("write")

    def sync(self, name):
        self.step("sync")
        self._synced[name] = len(self._written[name])


class _Draft:
    def __init__(self, disk, name):
        self._disk = disk
        self._name = name

    def write(self, data):
        self._disk.append(self._name, data)

    def sync(self):
        self._disk.sync(self._name)

    def close(self):
        pass


class ForgetfulStore:
    """A coordination store whose transactions crash the writer, before or after they are written."""

    def __init__(self, store, disk):
        self._store = store
        self._disk = disk

    def __getattr__(self, name):
        return getattr(self._store, name)

    def txn(self, compares, operations):
        self._disk.step("txn is not sent")
        answer = self._store.txn(compares, operations)
        self._disk.step("the answer is lost")
        return answer
