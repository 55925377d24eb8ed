"""Recordings: rosbag2 (mcap, sqlite3, zstd) and ROS 1 bags, read through `rosbags`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
import struct
from types import TracebackType
from typing import Any

from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from lpr_ros.core.errors import DatasetError

OnBad = Callable[[DatasetError], None]
NS_PER_S = 1_000_000_000


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
        # Bags of distributions before Iron do not carry their message definitions.
        store = get_typestore(Stores.ROS2_HUMBLE)
        try:
            self._reader = AnyReader(list(self.paths), default_typestore=store)
            self._reader.open()
        except Exception as error:  # a damaged file makes the parsers raise anything
            raise DatasetError(
                f'{self.label}: expected a rosbag2 folder, an .mcap, .db3 or ROS 1 .bag file: '
                f'{error or type(error).__name__}'
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
    def topics(self) -> list[Topic]:
        """List the topics by name."""
        return [
            Topic(name, str(info.msgtype), int(info.msgcount))
            for name, info in sorted(self._reader.topics.items())
        ]

    def messages(self, topic: str, on_bad: OnBad | None = None) -> Iterator[BagMessage]:
        """Yield the messages of one topic; one that cannot be read goes to on_bad, or raises."""
        try:
            for index, (log_ns, raw, msgtype) in enumerate(self._raw(topic)):
                try:
                    content = self._decode(topic, index, raw, msgtype)
                except DatasetError as error:
                    report(error, on_bad)
                    continue
                yield BagMessage(index, log_ns, content)
        except DatasetError as error:
            report(error, on_bad)

    def index(self, topic: str, on_bad: OnBad | None = None) -> list[Entry]:
        """List the messages of a topic whose type has a header, without decoding them."""
        entries: list[Entry] = []
        try:
            for index, (log_ns, raw, _) in enumerate(self._raw(topic)):
                same = entries and entries[-1].log_ns == log_ns
                ordinal = entries[-1].ordinal + 1 if same else 0
                entries.append(Entry(index, log_ns, ordinal, self._header_stamp_ns(raw)))
        except DatasetError as error:
            report(error, on_bad)
        return entries

    def read(self, topic: str, entry: Entry) -> BagMessage:
        """Read one message that `index` listed."""
        found = islice(self._raw(topic, entry.log_ns, entry.log_ns + 1), entry.ordinal, None)
        log_ns, raw, msgtype = next(found, (0, b'', ''))
        return BagMessage(entry.index, log_ns, self._decode(topic, entry.index, raw, msgtype))

    def _raw(
        self, topic: str, start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[tuple[int, bytes, str]]:
        """Yield (record time, bytes, type) of the messages recorded in [start_ns, stop_ns)."""
        connections = [c for c in self._reader.connections if c.topic == topic]
        if not connections:
            raise DatasetError(
                f'{self.label}: no topic {topic}; there are {[t.name for t in self.topics]}'
            )
        count = 0
        source = self._reader.messages(connections, start_ns, stop_ns)
        while True:
            try:
                connection, log_ns, raw = next(source)
            except StopIteration:
                return
            except Exception as error:  # as above
                raise DatasetError(
                    f'{self.label}: cannot be read beyond message {count} of {topic}: '
                    f'{error or type(error).__name__}'
                ) from error
            yield log_ns, raw, connection.msgtype
            count += 1

    def _decode(self, topic: str, index: int, raw: bytes, msgtype: str) -> Any:
        try:
            return self._reader.deserialize(raw, msgtype)
        except Exception as error:  # as above
            raise DatasetError(
                f'{self.label}: message {index} of {topic}: expected a {msgtype}: {error}'
            ) from error

    def _header_stamp_ns(self, raw: bytes) -> int:
        """Read the stamp of a leading std_msgs/Header from the bytes of a message."""
        order = '<'
        if self._reader.is2:  # CDR: byte 1 tells the order, the stamp follows four bytes
            order = '<' if raw[1:2] != b'\x00' else '>'
        try:
            seconds, part = struct.unpack_from(f'{order}iI', raw, 4)  # ROS 1: after seq
        except struct.error:
            return 0  # too short for a header: decoding will say so
        return int(seconds) * NS_PER_S + int(part)


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
            f'{bag.label}: expected {asked} to be a {what} topic; {_listing(bag, found, what)}'
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
