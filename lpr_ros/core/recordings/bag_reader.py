"""Read-only access to rosbag2 (mcap, sqlite3, zstd) and ROS 1 bags through `rosbags`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice
from pathlib import Path
import struct
from types import TracebackType
from typing import Any

from rosbags.rosbag1 import Reader as Ros1Reader
from rosbags.rosbag2 import Reader as Ros2Reader

from lpr_ros.core.errors import DatasetError, error_text
from lpr_ros.core.files import check_regular
from lpr_ros.core.recordings.base import OnBad, report
from lpr_ros.core.recordings.message_types import DECODED_TYPES, check_definition, standard_types
from lpr_ros.core.timing import NS_PER_S


@dataclass(frozen=True)
class Topic:
    """A topic of a bag."""

    name: str
    msgtype: str
    count: int


@dataclass(frozen=True)
class Entry:
    """Where to find one message: its index on its topic and its times."""

    index: int
    log_ns: int  # time of recording
    ordinal: int  # among the messages of the topic with the same log_ns
    stamp_ns: int  # header stamp


@dataclass(frozen=True)
class RawMessage:
    """A serialized message."""

    topic: str
    index: int  # on its topic
    log_ns: int
    msgtype: str
    data: bytes


@dataclass(frozen=True)
class BagMessage:
    """A decoded message."""

    index: int  # on its topic
    log_ns: int
    content: Any


class Bag:
    """A bag open for reading: a folder, a file, or the parts of a split bag.

    Messages are decoded with the standard types of ROS. A bag that defines a type of
    DECODED_TYPES differently is refused; the definitions of other types are ignored, so unknown
    types on other topics do no harm.
    """

    def __init__(self, paths: Sequence[Path]):
        self.paths = tuple(Path(p) for p in paths)
        self.label = ', '.join(map(str, self.paths))
        self._is_ros2 = any(path.suffix != '.bag' for path in self.paths)
        self._types = standard_types(self._is_ros2)
        try:
            for path in self.paths:
                for file in path.glob('*.*') if path.is_dir() else (path,):
                    check_regular(file)
            with ExitStack() as stack:
                make: Any = Ros2Reader if self._is_ros2 else Ros1Reader
                self._readers = [stack.enter_context(make(path)) for path in self.paths]
                self.topics = self._list_topics()
                self._check_definitions()
                self._open_files = stack.pop_all()
        except DatasetError as error:
            raise DatasetError(f'{self.label}: {error}') from error
        except Exception as error:  # the parsers raise anything on damaged files
            raise DatasetError(
                f'{self.label}: expected a rosbag2 folder, an .mcap, .db3 or ROS 1 .bag file: '
                f'{error_text(error)}'
            ) from error

    def _list_topics(self) -> list[Topic]:
        types: dict[str, set[str]] = {}
        counts: dict[str, int] = {}
        for connection in (c for reader in self._readers for c in reader.connections):
            types.setdefault(connection.topic, set()).add(connection.msgtype)
            counts[connection.topic] = counts.get(connection.topic, 0) + connection.msgcount
        return [
            Topic(name, ' or '.join(sorted(types[name])), counts[name]) for name in sorted(types)
        ]

    def _check_definitions(self) -> None:
        checked = set()
        for connection in (c for reader in self._readers for c in reader.connections):
            key = connection.msgtype, connection.msgdef
            if connection.msgtype in DECODED_TYPES and key not in checked:
                check_definition(connection.msgtype, connection.msgdef, self._is_ros2)
                checked.add(key)

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
        self._open_files.close()

    @property
    def span_ns(self) -> tuple[int, int]:
        """Return the times of recording of the first and the last message."""
        first = min(reader.start_time for reader in self._readers)
        end = max(reader.end_time for reader in self._readers)
        return int(first), int(end) - 1

    def messages(self, topic: str, on_bad: OnBad | None = None) -> Iterator[BagMessage]:
        """Yield the decoded messages of one topic; unreadable ones go to on_bad, or raise."""
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
        """Read one message by its entry."""
        found = islice(self.walk([topic], entry.log_ns, entry.log_ns + 1), entry.ordinal, None)
        raw = next(found, RawMessage(topic, entry.index, entry.log_ns, '', b''))
        return self.decode(replace(raw, index=entry.index))

    def walk(
        self, topics: Sequence[str], start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[RawMessage]:
        """Yield the messages of these topics recorded in [start_ns, stop_ns), in one pass."""
        unknown = sorted(set(topics) - {t.name for t in self.topics})
        if unknown:
            raise DatasetError(
                f'{self.label}: no topic {unknown[0]}; topics: {[t.name for t in self.topics]}'
            )
        counts = dict.fromkeys(topics, 0)
        source = self._merged(topics, start_ns, stop_ns)
        while True:
            try:
                connection, log_ns, data = next(source)
            except StopIteration:
                return
            except Exception as error:  # the parsers raise anything on damaged files
                read = ' and '.join(f'message {n} of {t}' for t, n in counts.items())
                raise DatasetError(
                    f'{self.label}: cannot be read past {read}: {error_text(error)}'
                ) from error
            topic = connection.topic
            yield RawMessage(topic, counts[topic], log_ns, connection.msgtype, data)
            counts[topic] += 1

    def _merged(
        self, topics: Sequence[str], start_ns: int | None, stop_ns: int | None
    ) -> Iterator[tuple[Any, int, bytes]]:
        """Merge the parts of a split bag by time of recording."""
        streams = []
        for reader in self._readers:
            connections = [c for c in reader.connections if c.topic in topics]
            if connections:  # an empty list would select all topics
                streams.append(reader.messages(connections, start_ns, stop_ns))
        return merge(*streams, key=lambda message: message[1])

    def decode(self, raw: RawMessage) -> BagMessage:
        """Decode one message; DatasetError names it."""
        deserialize = (
            self._types.deserialize_cdr if self._is_ros2 else self._types.deserialize_ros1
        )
        try:
            content = deserialize(raw.data, raw.msgtype)
        except Exception as error:  # the decoder raises anything on damaged data
            raise self._decode_error(raw, error) from error
        return BagMessage(raw.index, raw.log_ns, content)

    def cdr(self, raw: RawMessage) -> bytes:
        """Return a message in the serialization of ROS 2 (CDR)."""
        if self._is_ros2:
            return bytes(raw.data)
        try:
            return bytes(standard_types(is_ros2=True).ros1_to_cdr(raw.data, raw.msgtype))
        except Exception as error:  # the converter raises anything on damaged data
            raise self._decode_error(raw, error) from error

    def entry_of(self, raw: RawMessage, previous: Entry | None) -> Entry:
        """Return the entry of a message with a header, without decoding it."""
        same = previous is not None and previous.log_ns == raw.log_ns
        ordinal = previous.ordinal + 1 if same and previous is not None else 0
        return Entry(raw.index, raw.log_ns, ordinal, self._header_stamp_ns(raw.data))

    def _decode_error(self, raw: RawMessage, error: Exception) -> DatasetError:
        return DatasetError(
            f'{self.label}: message {raw.index} of {raw.topic}: expected a {raw.msgtype}: '
            f'{error_text(error)}'
        )

    def _header_stamp_ns(self, data: bytes) -> int:
        """Read the stamp of a leading std_msgs/Header from the bytes of a message."""
        order = '<'
        if self._is_ros2:  # CDR: byte 1 is the byte order, the stamp starts at byte 4
            order = '<' if data[1:2] != b'\x00' else '>'
        try:
            seconds, part = struct.unpack_from(f'{order}iI', data, 4)  # ROS 1: seq is first
        except struct.error:
            return 0  # too short for a header: reported when it is decoded
        return int(seconds) * NS_PER_S + int(part)


def choose_topic(bag: Bag, types: Iterable[str], what: str, requested: str = '') -> str:
    """Return the requested topic, or the only one of these types; DatasetError lists them.

    Ground-truth topics are for evaluation and chosen only by request.
    """
    accepted = tuple(types)
    found = [t for t in bag.topics if t.msgtype in accepted]
    if requested:
        if requested in [t.name for t in found]:
            return requested
        raise DatasetError(
            f'{bag.label}: expected {requested} to be one of the {what} topics; '
            f'{_listing(bag, found, what)}'
        )
    candidates = [t for t in found if not is_ground_truth(t.name)]
    if len(candidates) == 1:
        return candidates[0].name
    raise DatasetError(f'{bag.label}: {_listing(bag, candidates, what)}')


def is_ground_truth(topic: str) -> bool:
    """Return whether the name of a topic marks it as ground truth."""
    return 'ground_truth' in topic or 'groundtruth' in topic


def _listing(bag: Bag, found: list[Topic], what: str) -> str:
    if found:
        names = ', '.join(f'{t.name} ({t.msgtype}, {t.count} messages)' for t in found)
        return f'choose one of the {what} topics: {names}'
    names = ', '.join(f'{t.name} ({t.msgtype})' for t in bag.topics) or 'no topics'
    return f'no {what} topic; the bag has {names}'
