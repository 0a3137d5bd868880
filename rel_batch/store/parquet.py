"""One Parquet file as a stream of rows: written whole or not at all, read in bounded memory.

    write_rows(path, COMPLETIONS, rows, replace=False)
    for row in read_rows(path, COMPLETIONS): ...

What is read is checked: a truncated file, garbage, another schema or a flipped bit in the data
is a `StoreError` that names the file, never a wrong number. Surprising: Parquet has checksums
for its pages but none for its footer, where a flipped bit can make rows vanish; so the number
of rows is written twice.
"""

# pyarrow has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from rel_batch.errors import StoreError
from rel_batch.store.disk import disk_errors, writing
from rel_batch.store.schemas import METADATA_KEY, FileKind, Row

_NOTE = b"rel_batch.note."
_ROWS = b"rel_batch.num_rows"


def write_rows(
    path: Path,
    kind: FileKind[Row],
    rows: Iterable[Row],
    *,
    replace: bool,
    notes: Mapping[str, str] | None = None,
) -> int:
    """Publish a file of rows atomically and give how many there are.

    `notes` are stored beside the schema (`read_notes`). Holds `kind.batch_rows` rows at a time.
    Raises StoreError where the disk fails and NameTakenError where the name is taken (without
    `replace`).
    """
    batches = (kind.batch(chunk) for chunk in _chunks(rows, kind.batch_rows))
    schema = schema_with_notes(kind, notes or {})
    return write_batches(path, schema, batches, dictionary=kind.dictionary, replace=replace)


def schema_with_notes(kind: FileKind[Any], notes: Mapping[str, str]) -> Any:
    """The schema of a file of this kind that carries `notes` (`read_notes`)."""
    encoded = {_NOTE + name.encode(): text.encode() for name, text in notes.items()}
    return kind.schema.with_metadata({**kind.schema.metadata, **encoded})


def write_batches(
    path: Path,
    schema: Any,
    batches: Iterable[Any],
    *,
    dictionary: Sequence[str],
    replace: bool,
) -> int:
    """Publish a file of record batches, each one row group, and give how many rows it has."""
    with writing_batches(path, schema, dictionary=dictionary, replace=replace) as file:
        for batch in batches:
            file.write(batch)
    return file.num_rows


class BatchFile:
    """A Parquet file that is being written."""

    def __init__(self, writer: Any, file: BinaryIO) -> None:
        self._writer = writer
        self._file = file
        self.num_rows = 0

    @property
    def num_bytes(self) -> int:
        """What has gone to the file so far."""
        return self._file.tell()

    def write(self, batch: Any) -> None:
        """Append a record batch or a table as one row group."""
        self._writer.write_table(
            batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch]),
            row_group_size=max(1, batch.num_rows),
        )
        self.num_rows += batch.num_rows


@contextlib.contextmanager
def writing_batches(
    path: Path, schema: Any, *, dictionary: Sequence[str], replace: bool
) -> Generator[BatchFile]:
    """A file that appears under `path`, whole and on disk, when the block ends well."""
    with writing(path, replace=replace) as file:
        writer = pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            use_dictionary=cast(Any, list(dictionary)),
            write_page_checksum=True,
        )
        with writer:
            batch_file = BatchFile(writer, file)
            yield batch_file
            writer.add_key_value_metadata({_ROWS.decode(): str(batch_file.num_rows)})


def read_rows(
    path: Path, kind: FileKind[Row], *, omit: Sequence[str] = (), chunk: int | None = None
) -> Iterator[Row]:
    """The rows of a file in order, without the columns in `omit`; of one chunk if it is given."""
    for rows in read_row_lists(path, kind, omit=omit, chunk=chunk):
        yield from rows


def read_row_lists(
    path: Path, kind: FileKind[Row], *, omit: Sequence[str] = (), chunk: int | None = None
) -> Iterator[list[Row]]:
    """The same, batch by batch."""
    columns = [name for name in kind.column_names if name not in omit]
    for batch in read_batches(path, kind, columns, chunk=chunk):
        with _damage_named(path):
            rows = kind.rows(batch)
        yield rows


def read_columns(
    path: Path, kind: FileKind[Any], columns: Sequence[str], *, chunk: int | None = None
) -> Iterator[tuple[list[Any], ...]]:
    """Some columns of a file as Python lists, batch by batch. Raises StoreError."""
    for batch in read_batches(path, kind, columns, chunk=chunk):
        with _damage_named(path):
            values = tuple(kind.values(batch, name) for name in columns)
        yield values


def read_batches(
    path: Path, kind: FileKind[Any], columns: Sequence[str], *, chunk: int | None = None
) -> Iterator[Any]:
    """Record batches of at most `kind.batch_rows` rows. Raises StoreError."""
    with _open(path, kind) as file:
        groups = range(file.num_row_groups)
        if chunk is not None:
            index = file.schema_arrow.get_field_index("chunk")
            groups = [group for group in groups if _may_hold(file, group, index, chunk)]
            if "chunk" not in columns:
                columns = [*columns, "chunk"]
        batches = iter(
            file.iter_batches(
                batch_size=kind.batch_rows,
                row_groups=groups,
                columns=columns,
                # Handing a small part's columns to threads takes longer than to read them.
                use_threads=file.metadata.num_rows > kind.batch_rows,
            )
        )
        num_rows = 0
        while True:
            with _damage_named(path):
                batch = next(batches, None)
                if batch is None:
                    if chunk is None and num_rows != file.metadata.num_rows:
                        raise pa.ArrowInvalid(f"only {num_rows} rows can be read")
                    return
            num_rows += batch.num_rows
            if chunk is not None:
                batch = batch.filter(pa.array(batch.column("chunk").to_numpy() == chunk))
            yield batch


def read_num_rows(path: Path, kind: FileKind[Any]) -> int:
    """How many rows a file has; only its footer is read. Raises StoreError."""
    return _read_footer(path, kind).num_rows


def read_notes(path: Path, kind: FileKind[Any]) -> dict[str, str]:
    """The `notes` that a file was written with; only its footer is read. Raises StoreError."""
    return {
        name.removeprefix(_NOTE).decode(errors="replace"): text.decode(errors="replace")
        for name, text in _read_footer(path, kind).metadata.items()
        if name.startswith(_NOTE)
    }


def _read_footer(path: Path, kind: FileKind[Any]) -> Any:
    with _damage_named(path):
        metadata = pq.read_metadata(path)  # half the time that it takes to open it for reading
    found: bytes = (metadata.metadata or {}).get(METADATA_KEY, b"")
    if found != kind.label.encode():
        with _open(path, kind):  # says what is wrong
            pass
    _check_num_rows(path, metadata)
    return metadata


@contextlib.contextmanager
def _open(path: Path, kind: FileKind[Any]) -> Generator[Any]:
    with _damage_named(path):
        file = pq.ParquetFile(path, page_checksum_verification=True)
    with file:
        schema = file.schema_arrow
        found = (schema.metadata or {}).get(METADATA_KEY, b"none").decode(errors="replace")
        if found != kind.label or not schema.equals(kind.schema, check_metadata=False):
            raise StoreError(
                f"{path} has another schema: expected {kind.label} with the columns "
                f"{', '.join(kind.column_names)}; found {found} with "
                f"{', '.join(schema.names) or 'no columns'}",
                hint="It was written by another program or another version of rel-batch. "
                "Use the version that wrote it, or move the file out of the run folder; "
                "what it held is then done again.",
            )
        # Which key-values a file has is not in the Arrow schema, so they are read from the footer.
        _check_num_rows(path, file.metadata)
        yield file


def _check_num_rows(path: Path, metadata: Any) -> None:
    with _damage_named(path):
        if metadata.metadata.get(_ROWS) != str(metadata.num_rows).encode():
            raise pa.ArrowInvalid(f"its footer counts {metadata.num_rows} rows")


@contextlib.contextmanager
def _damage_named(path: Path) -> Generator[None]:
    """A failure to read or decode becomes a StoreError about this file."""
    with disk_errors("read", path):
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            reason = " ".join(str(error).split())
            raise StoreError(
                f"{path} is damaged: {reason}",
                hint="Move the file out of the run folder; what it held is then done again. "
                "rel-batch never writes half a file, so look for a bad copy or a bad disk.",
            ) from error


def _may_hold(file: Any, group: int, index: int, chunk: int) -> bool:
    statistics = file.metadata.row_group(group).column(index).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return statistics.min <= chunk <= statistics.max


def _chunks(rows: Iterable[Row], size: int) -> Iterator[Sequence[Row]]:
    iterator = iter(rows)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk
