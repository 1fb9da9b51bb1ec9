/**
 * State of an upload that a browser stores across a reload: the files and their checksums, which take long to compute.
 */

export interface Remembered {
  path: string;
  size: number;
  modified: number;
  sha256: string;
}

type Store = Pick<Storage, "getItem" | "setItem" | "removeItem">;

export class Memory {
  private files: Map<string, Remembered>;

  constructor(private readonly store: Store, private readonly key: string) {
    this.files = new Map(read(store, key).map((file) => [file.path, file]));
  }

  get all(): Remembered[] {
    return [...this.files.values()];
  }

  /** The stored checksum of a file, if the file is unchanged. */
  sha256Of(path: string, size: number, modified: number): string {
    const found = this.files.get(path);
    return found && found.size === size && found.modified === modified ? found.sha256 : "";
  }

  keep(files: Remembered[]): void {
    for (const file of files) this.files.set(file.path, file);
    try {
      this.store.setItem(this.key, JSON.stringify(this.all));
    } catch {
      // Storage is full: after a reload the files are hashed once more, and nothing else is lost.
    }
  }

  forget(): void {
    this.files = new Map();
    this.store.removeItem(this.key);
  }
}

function read(store: Store, key: string): Remembered[] {
  try {
    const found: unknown = JSON.parse(store.getItem(key) ?? "[]");
    return Array.isArray(found) ? (found as Remembered[]) : [];
  } catch {
    return [];
  }
}
