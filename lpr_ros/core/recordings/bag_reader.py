"""Recordings: rosbag2 (mcap, sqlite3, zstd) and ROS 1 bags, read through `rosbags`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
import struct
from types import TracebackType
from typing import Any

from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.errors import DatasetError, reason

OnBad = Callable[[DatasetError], None]


@dataclass(frozen=True)
class Topic:
    """One topic of a recording."""

    name: str
    msgtype: str
    count: int


@dataclass(frozen=True)
class Entry:
    """Where one message is: its number on its topic and its times."""

    index: int
    log_ns: int  # when it was recorded
    ordinal: int  # among the messages of the topic recorded at that very time
    stamp_ns: int  # its header


@dataclass(frozen=True)
class RawMessage:
    """One message not yet decoded."""

    topic: str
    index: int  # its number on its topic
    log_ns: int
    msgtype: str
    data: bytes


@dataclass(frozen=True)
class BagMessage:
    """One message: its number on its topic, when it was recorded, and what it says."""

    index: int
    log_ns: int
    content: Any


class Bag:
    """One recording (a folder, a file, or the parts of a split one), open for reading."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = tuple(Path(p) for p in paths)
        self.label = ', '.join(map(str, self.paths))
        try:
            self._reader = AnyReader(list(self.paths), default_typestore=_standard_types())
            self._reader.open()
            self.topics = [
                Topic(name, str(info.msgtype), int(info.msgcount))
                for name, info in sorted(self._reader.topics.items())
            ]
        except Exception as error:  # a damaged file makes the parsers raise anything
            raise DatasetError(
                f'{self.label}: expected a rosbag2 folder, an .mcap, .db3 or ROS 1 .bag file: '
                f'{reason(error)}'
            ) from error

    def __enter__(self) -> 'Bag':
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    @property
    def span_ns(self) -> tuple[int, int]:
        """When the first and the last message were recorded."""
        return int(self._reader.start_time), int(self._reader.end_time) - 1

    def messages(self, topic: str, on_bad: OnBad | None = None) -> Iterator[BagMessage]:
        """Yield the messages of one topic; one that cannot be read goes to on_bad, or raises."""
        try:
            for raw in self.walk([topic]):
                try:
                    message = self.decode(raw)
                except DatasetError as error:
                    report(error, on_bad)
                    continue
                yield message
        except DatasetError as error:
            report(error, on_bad)

    def read(self, topic: str, entry: Entry) -> BagMessage:
        """Read one message that `entry_of` described."""
        found = islice(self.walk([topic], entry.log_ns, entry.log_ns + 1), entry.ordinal, None)
        raw = next(found, RawMessage(topic, entry.index, entry.log_ns, '', b''))
        return self.decode(replace(raw, index=entry.index))

    def walk(
        self, topics: Sequence[str], start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[RawMessage]:
        """Yield the messages of some topics recorded in [start_ns, stop_ns), in one pass."""
        unknown = sorted(set(topics) - {t.name for t in self.topics})
        if unknown:
            raise DatasetError(
                f'{self.label}: no topic {unknown[0]}; there are {[t.name for t in self.topics]}'
            )
        connections = [c for c in self._reader.connections if c.topic in topics]
        counts = dict.fromkeys(topics, 0)
        source = self._reader.messages(connections, start_ns, stop_ns)
        while True:
            try:
                connection, log_ns, data = next(source)
            except StopIteration:
                return
            except Exception as error:  # as above
                read = ' and '.join(f'message {n} of {t}' for t, n in counts.items())
                raise DatasetError(
                    f'{self.label}: cannot be read beyond {read}: {reason(error)}'
                ) from error
            topic = connection.topic
            yield RawMessage(topic, counts[topic], log_ns, connection.msgtype, data)
            counts[topic] += 1

    def decode(self, raw: RawMessage) -> BagMessage:
        """Decode one message; a DatasetError names it."""
        try:
            content = self._reader.deserialize(raw.data, raw.msgtype)
        except Exception as error:  # as above
            raise self._not_a(raw, error) from error
        return BagMessage(raw.index, raw.log_ns, content)

    def cdr(self, raw: RawMessage) -> bytes:
        """Return a message as ROS 2 sends it, without decoding it."""
        if self._reader.is2:
            return bytes(raw.data)
        try:
            return bytes(_standard_types().ros1_to_cdr(raw.data, raw.msgtype))
        except Exception as error:  # as above
            raise self._not_a(raw, error) from error

    def entry_of(self, raw: RawMessage, previous: Entry | None) -> Entry:
        """Describe a message of a type with a header, without decoding it."""
        same = previous is not None and previous.log_ns == raw.log_ns
        ordinal = previous.ordinal + 1 if same and previous is not None else 0
        return Entry(raw.index, raw.log_ns, ordinal, self._header_stamp_ns(raw.data))

    def _not_a(self, raw: RawMessage, error: Exception) -> DatasetError:
        return DatasetError(
            f'{self.label}: message {raw.index} of {raw.topic}: expected a {raw.msgtype}: '
            f'{reason(error)}'
        )

    def _header_stamp_ns(self, data: bytes) -> int:
        """Read the stamp of a leading std_msgs/Header from the bytes of a message."""
        order = '<'
        if self._reader.is2:  # CDR: byte 1 tells the order, the stamp follows four bytes
            order = '<' if data[1:2] != b'\x00' else '>'
        try:
            seconds, part = struct.unpack_from(f'{order}iI', data, 4)  # ROS 1: after seq
        except struct.error:
            return 0  # too short for a header: decoding will say so
        return int(seconds) * NS_PER_S + int(part)


@cache
def _standard_types() -> Any:
    """Return the message types for bags without definitions, as before ROS 2 Iron."""
    return get_typestore(Stores.ROS2_HUMBLE)


def choose_topic(bag: Bag, types: Iterable[str], what: str, asked: str = '') -> str:
    """Return the topic asked for, or the only one of these types; else list what there is.

    A topic called ground truth is for evaluation and is chosen only when asked for.
    """
    accepted = tuple(types)
    found = [t for t in bag.topics if t.msgtype in accepted]
    if asked:
        if asked in [t.name for t in found]:
            return asked
        raise DatasetError(
            f'{bag.label}: expected {asked} to be one of the {what} topics; '
            f'{_listing(bag, found, what)}'
        )
    candidates = [t for t in found if not is_ground_truth(t.name)]
    if len(candidates) == 1:
        return candidates[0].name
    raise DatasetError(f'{bag.label}: {_listing(bag, candidates, what)}')


def is_ground_truth(topic: str) -> bool:
    """Tell by its name whether a topic holds the truth instead of an estimate."""
    return 'ground_truth' in topic or 'groundtruth' in topic


def _listing(bag: Bag, found: list[Topic], what: str) -> str:
    if found:
        names = ', '.join(f'{t.name} ({t.msgtype}, {t.count} messages)' for t in found)
        return f'choose one of the {what} topics: {names}'
    names = ', '.join(f'{t.name} ({t.msgtype})' for t in bag.topics) or 'no topics'
    return f'no {what} topic; the recording has {names}'


def report(error: DatasetError, on_bad: OnBad | None) -> None:
    """Hand bad input to on_bad, or raise it."""
    if on_bad is None:
        raise error
    on_bad(error)
