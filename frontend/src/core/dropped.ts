/** Files that were chosen or dropped, with their paths: those of a folder by their path below it. */

export interface Found {
  path: string;
  file: File;
}

/** The files, and how many were left out because a name in their path begins with a dot. */
export interface Choice {
  found: Found[];
  hidden: number;
}

export function chosen(files: Iterable<File>): Choice {
  return visible([...files].map((file) => ({ path: below(file.webkitRelativePath) || file.name, file })));
}

export async function dropped(data: DataTransfer): Promise<Choice> {
  // All entries are read before the first await: after it the list is empty.
  const entries = [...data.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  const found = await Promise.all(entries.map((entry) => under(entry, "")));
  return visible(found.flat());
}

/** `folder/a/b` is `a/b` in the dataset. */
function below(path: string): string {
  return path.split("/").slice(1).join("/");
}

export function visible(found: Found[]): Choice {
  const shown = found.filter(({ path }) => !path.split("/").some((name) => name.startsWith(".")));
  return { found: shown, hidden: found.length - shown.length };
}

async function under(entry: FileSystemEntry, folder: string): Promise<Found[]> {
  if (entry.isFile) return [{ path: folder + entry.name, file: await fileOf(entry as FileSystemFileEntry) }];
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: Found[] = [];
  // A directory reader returns entries in batches, and none at the end.
  for (let some = await someOf(reader); some.length; some = await someOf(reader)) {
    for (const each of some) found.push(...(await under(each, each.isFile ? folder : `${folder}${each.name}/`)));
  }
  return found;
}

const fileOf = (entry: FileSystemFileEntry): Promise<File> => new Promise((give, refuse) => entry.file(give, refuse));
const someOf = (reader: FileSystemDirectoryReader): Promise<FileSystemEntry[]> => new Promise((give, refuse) => reader.readEntries(give, refuse));
