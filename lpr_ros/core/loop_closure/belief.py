"""Which loop closures to believe, and with what probability.

Loop closures that follow one another along the way and agree with each other form a family: one
hypothesis about where the robot is. A family is judged as a whole, because in repeated structure
the next keyframe makes the same mistake as the one before. Its log-odds are the sum of

descriptor, geometry   how well the two places match (evidence of one look)
way                    the same again for every STRUCTURE_M of new structure seen on the way
odometry               how well it fits the odometry, or a family that is itself believed

Families that contradict each other are rivals: the probability of one is its share among them and
"none of them". The belief depends on the loop closures seen so far, not on their order, so a
family that was believed can be outvoted later. It is then retracted.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, logit, logsumexp
from scipy.stats import chi2

from lpr_ros.core.config import Config, option
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig, drift_covariance
from lpr_ros.core.geometry.se3 import adjoint, invert, local_error, propagate
from lpr_ros.core.types import Keyframe, LoopClosure

STRUCTURE_M = 20.0  # scans this far apart share little structure: two independent looks
MAX_LINK_M = 30.0  # along the way, between two loop closures of one family
# Standard deviation of the offset between a place and one that looks like it: how far a wrong loop
# closure is off, beyond the error of odometry. Horizontal, vertical (floors of a garage).
LOOK_ALIKE_M = np.array([30.0, 30.0, 3.0])
NOISE_FACTORS, NOISE_WEIGHTS = (1.0, 2.0), (0.95, 0.05)  # odometry is often worse than configured
MAX_DESCRIPTOR_TRUST = 0.95  # the descriptor alone never says more, for or against
# Log-odds that looks alone can reach. Some structure repeats: the longer the stretch, the rarer.
FIRST_LOOKS, LOOKS_PER_M, MAX_LOOKS = 5.5, 1.0 / 60.0, 8.5
# Between sessions odometry cannot help, and a robot that is lost should not wait for long.
FIRST_LOOKS_BETWEEN_SESSIONS = 6.8
MAX_DECEPTIVE_LOOKS = 5.0  # where wrong families are known to look right
DECEPTIVE_LOOKS = (2.0, 6.0)  # log-odds by looks of a wrong family: none, and all of that doubt
REFUTED = -20.0  # log-likelihood ratio by which a family, or one of two, is ruled out
# A loop closure that does not look right must agree with this fraction of its family nearby.
MIN_AGREEING, NEARBY_M = 0.5, 10.0
BUILT_TWICE_M = 100.0  # more structure that repeats as a whole is less likely by a factor of e
ODOMETRY_WEIGHT = 5.0  # of a contradiction by odometry, between sets of families
MAX_SEEDS = 8  # families that the search for the best set starts from
RETRACT_LOG_ODDS = 0.0  # a family that was believed is retracted when it is less likely than not


@dataclass(frozen=True)
class BeliefConfig(Config):
    """When loop closures are believed."""

    trust: float = option(
        0.999,
        'Probability of being correct at which a loop closure is published; higher values publish '
        'fewer, and later',
        low=0.5,
        high=0.999999,
    )
    window: int = option(
        500,
        'Maximum number of recent loop closures per pair of sessions to weigh against each other',
        low=1,
    )


@dataclass(frozen=True, eq=False)
class Evidence:
    """A loop closure, the odometry of its two keyframes, and what one look says about it."""

    loop: LoopClosure
    T_query: NDArray[np.float64]
    T_match: NDArray[np.float64]
    traveled_query_m: float
    traveled_match_m: float
    log_odds: float


@dataclass(frozen=True, eq=False)
class Prediction:
    """Relative pose of two keyframes from odometry and at most one believed loop closure."""

    T_match_query: NDArray[np.float64]  # (4, 4)
    traveled_m: float  # odometry distance that it accumulates drift over

    @classmethod
    def from_odometry(cls, query: Keyframe, match: Keyframe) -> 'Prediction | None':
        """Predict from odometry alone; None without it or across sessions."""
        T_query, T_match = query.T_odom_sensor, match.T_odom_sensor
        if T_query is None or T_match is None or query.session != match.session:
            return None
        return cls(invert(T_match) @ T_query, abs(query.traveled_m - match.traveled_m))


@dataclass(frozen=True)
class BeliefChange:
    """Loop closures to publish and to take back."""

    trusted: tuple[LoopClosure, ...] = ()
    retracted: tuple[LoopClosure, ...] = ()

    def followed_by(self, later: 'BeliefChange') -> 'BeliefChange':
        """Return both changes as one; what is published and taken back at once is neither."""
        undone = {id(x) for x in self.trusted} & {id(x) for x in later.retracted}
        return BeliefChange(
            tuple(x for x in (*self.trusted, *later.trusted) if id(x) not in undone),
            tuple(x for x in (*self.retracted, *later.retracted) if id(x) not in undone),
        )


class LoopBelief:
    """Receives verified loop closures one by one and says which of them to believe."""

    def __init__(
        self, config: BeliefConfig | None = None, noise: OdometryNoiseConfig | None = None
    ):
        self.configure(config or BeliefConfig(), noise or OdometryNoiseConfig())
        self._groups: dict[tuple[str, str], _Group] = {}

    def configure(self, config: BeliefConfig, noise: OdometryNoiseConfig) -> None:
        """Use new settings from the next loop closure on; past ones are kept."""
        self.config, self._noise = config, noise

    def predict(self, query: Keyframe, match: Keyframe) -> Prediction | None:
        """Predict the relative pose over the least odometry; None if nothing connects the two."""
        direct = Prediction.from_odometry(query, match)
        via = self._nearest_trusted(query, match)
        T_query, T_match = query.T_odom_sensor, match.T_odom_sensor
        if via is None or T_query is None or T_match is None:
            return direct
        traveled_m = abs(query.traveled_m - via.traveled_query_m)
        traveled_m += abs(match.traveled_m - via.traveled_match_m)
        if direct is not None and direct.traveled_m <= traveled_m:
            return direct
        T_match_query = (
            invert(T_match) @ via.T_match @ via.loop.T_match_query @ invert(via.T_query) @ T_query
        )
        return Prediction(T_match_query, traveled_m)

    def is_undecided(self, query: Keyframe, match: Keyframe) -> bool:
        """Return whether no believed loop closure nearby says where the query is."""
        via = self._nearest_trusted(query, match)
        return via is None or abs(query.traveled_m - via.traveled_query_m) > MAX_LINK_M

    def probability(self, loop: LoopClosure) -> float:
        """Return the present belief in a loop closure of the window; 0 if it is not there."""
        return max((group.probability(loop) for group in self._groups.values()), default=0.0)

    def add(self, loop: LoopClosure, query: Keyframe, match: Keyframe) -> BeliefChange:
        """Add a verified loop closure and its alternatives; return what changes.

        Without odometry there are no families: a loop closure is believed on its own evidence.
        """
        loops = [replace(loop, alternatives=()), *loop.alternatives]
        T_query, T_match = query.T_odom_sensor, match.T_odom_sensor
        if T_query is None or T_match is None or not np.isfinite([T_query, T_match]).all():
            is_clear = len(loops) == 1 and own_log_odds(loops[0]) >= logit(self.config.trust)
            return BeliefChange(tuple(loops) if is_clear else ())
        is_same_session = query.session == match.session
        group = self._groups.setdefault((query.session, match.session), _Group(is_same_session))
        for pose in loops:
            entry = Evidence(
                pose, T_query, T_match, query.traveled_m, match.traveled_m, own_log_odds(pose)
            )
            group.append(entry, self._noise, self.config.window)
        return group.update(self.config.trust)

    def _nearest_trusted(self, query: Keyframe, match: Keyframe) -> Evidence | None:
        group = self._groups.get((query.session, match.session))
        return None if group is None else group.nearest_trusted(query.traveled_m, match.traveled_m)


def own_log_odds(loop: LoopClosure) -> float:
    """Return what descriptor and geometry say about one loop closure."""
    probability = 0.5 if np.isnan(loop.match.probability) else loop.match.probability
    doubt = 1.0 - MAX_DESCRIPTOR_TRUST
    return float(logit(np.clip(probability, doubt, 1.0 - doubt))) + loop.log_odds


class _Group:
    """The loop closures between one pair of sessions, with what each pair of them says."""

    def __init__(self, is_same_session: bool):
        self._is_same_session = is_same_session
        self._entries: list[Evidence] = []
        # (4, N, N), of two loops: squared Mahalanobis distance of their cycle, log-likelihood
        # ratio of both being right, and how far apart they are along the way (sum and larger of
        # both ends).
        self._pairs: NDArray[np.float64] = np.zeros((4, 0, 0))
        # (N,), log-likelihood ratio of the cycle with odometry alone
        self._odometry: NDArray[np.float64] = np.zeros(0)
        self._log_odds: NDArray[np.float64] = np.zeros(0)  # of families, as of the last update
        self._trusted: dict[int, LoopClosure] = {}  # by id()
        self._deceptive = -np.inf  # see Families

    def nearest_trusted(self, query_m: float, match_m: float) -> Evidence | None:
        """Return the believed entry that is the least odometry away."""
        trusted = [entry for entry in self._entries if id(entry.loop) in self._trusted]
        if not trusted:
            return None
        apart_m = np.abs(_ends(trusted) - (query_m, match_m)).sum(axis=1)
        return trusted[int(apart_m.argmin())]

    def probability(self, loop: LoopClosure) -> float:
        """Return the belief in a loop closure as of the last update."""
        found = [o for e, o in zip(self._entries, self._log_odds, strict=True) if e.loop is loop]
        return float(expit(found[0])) if found else 0.0

    def append(self, entry: Evidence, noise: OdometryNoiseConfig, window: int) -> None:
        """Add an entry, and forget those that no longer fit into the window."""
        count = len(self._entries)
        pairs = np.zeros((4, count + 1, count + 1))
        pairs[:, :count, :count] = self._pairs
        if count:
            cycle = cycles(entry, self._entries, noise)
            apart_m = np.abs(_ends(self._entries) - _ends([entry]))
            row = squared_distance(*cycle), log_ratio(*cycle), apart_m.sum(1), apart_m.max(1)
            pairs[:, count, :count] = pairs[:, :count, count] = row
        odometry = log_ratio(*odometry_cycle(entry, noise)) if self._is_same_session else [0.0]
        self._entries.append(entry)
        excess = max(0, count + 1 - window)
        for dropped in self._entries[:excess]:
            self._trusted.pop(id(dropped.loop), None)
        self._entries = self._entries[excess:]
        self._odometry = np.append(self._odometry, odometry)[excess:]
        self._pairs = pairs[:, excess:, excess:]

    def update(self, trust: float) -> BeliefChange:
        """Weigh all families anew; return the loop closures whose belief changed."""
        max_error = float(chi2.ppf(trust, 6))
        labels = self._families(max_error)
        self._log_odds = self._weigh(labels)[labels]
        was_trusted = np.array([id(e.loop) in self._trusted for e in self._entries])
        is_old_family = np.isin(labels, labels[was_trusted])
        required = np.where(is_old_family, RETRACT_LOG_ODDS, logit(trust))
        fits = self._fits_family(labels, max_error)
        rows = np.flatnonzero((self._log_odds >= required) & fits)
        now = {id(self._entries[i].loop): self._entries[i].loop for i in rows}
        change = BeliefChange(
            tuple(loop for i, loop in now.items() if i not in self._trusted),
            tuple(loop for i, loop in self._trusted.items() if i not in now),
        )
        self._trusted = now
        return change

    def _families(self, max_error: float) -> NDArray[np.int64]:
        """Return the family of each entry: consistent loop closures linked along the way."""
        error, _, _, reach_m = self._pairs
        linked = csr_array((reach_m <= MAX_LINK_M) & (error <= max_error))
        labels: NDArray[np.int64] = connected_components(linked, directed=False)[1]
        return labels

    def _fits_family(self, labels: NDArray[np.int64], max_error: float) -> NDArray[np.bool_]:
        """Return which entries look right, or agree with most of their family nearby.

        A loop closure of large covariance links others that contradict each other.
        """
        error, _, _, reach_m = self._pairs
        is_near = (reach_m <= NEARBY_M) & (labels[:, None] == labels)
        agreeing = (is_near & (error <= max_error)).sum(axis=1)
        looks_right = np.array([entry.log_odds > 0.0 for entry in self._entries])
        fits: NDArray[np.bool_] = looks_right | (agreeing >= MIN_AGREEING * is_near.sum(axis=1))
        return fits

    def _weigh(self, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-odds of each family against its rivals and "none"."""
        rows = [np.flatnonzero(labels == family) for family in range(labels.max() + 1)]
        gaps_m = np.abs(np.diff(_ends(self._entries)))[:, 0]
        structure_m = np.array([self._structure_m(family) for family in rows])
        looks = np.array([np.mean([self._entries[i].log_odds for i in f]) for f in rows])
        families = Families(
            own=evidence_of_looks(looks, structure_m),
            odometry=np.array([self._odometry[f[gaps_m[f].argmin()]] for f in rows]),
            between=self._between(labels),
            structure_m=structure_m,
            is_same_stretch=self._share_a_stretch(rows),
            deceptive=self._deceptive,
            has_odometry=self._is_same_session,
        )
        self._deceptive = families.most_deceptive()
        return weigh(families)

    def _structure_m(self, family: NDArray[np.int64]) -> float:
        """Return how much new structure a family has seen on its way."""
        entries = sorted((self._entries[i] for i in family), key=lambda e: e.traveled_query_m)
        return new_structure_m(np.stack([e.T_query[:3, 3] for e in entries]))

    def _between(self, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the log-likelihood ratio of each pair of families, by their nearest entries."""
        _, gain, apart_m, _ = self._pairs
        order = np.argsort(labels, kind='stable')
        starts = np.searchsorted(labels[order], np.arange(labels.max() + 1))
        by_family = np.minimum.reduceat(apart_m[np.ix_(order, order)], starts, axis=0)
        nearest_m = np.minimum.reduceat(by_family, starts, axis=1)
        a, b = np.nonzero(apart_m <= nearest_m[np.ix_(labels, labels)])
        gains = np.zeros_like(nearest_m)
        gains[labels[a], labels[b]] = gain[a, b]
        np.fill_diagonal(gains, 0.0)
        return gains

    def _share_a_stretch(self, families: list[NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Return which families say where the same stretch of the way was driven."""
        ways = [[self._entries[i].traveled_query_m for i in family] for family in families]
        low = np.array([min(way) for way in ways]) - 0.5 * STRUCTURE_M
        high = np.array([max(way) for way in ways]) + 0.5 * STRUCTURE_M
        shared: NDArray[np.bool_] = (low[:, None] <= high) & (low <= high[:, None])
        return shared


def evidence_of_looks(
    looks: NDArray[np.float64], structure_m: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the evidence (F,) of families by their mean looks and the new structure they saw.

    Good looks add up. Bad ones do not: what has changed since looks bad, too. That it agrees with
    the way for long is evidence by itself.
    """
    evidence: NDArray[np.float64] = np.maximum(
        (1.0 + structure_m / STRUCTURE_M) * looks, looks + LOOKS_PER_M * structure_m
    )
    return evidence


def _ends(entries: list[Evidence]) -> NDArray[np.float64]:
    """Return the traveled distances of query and match (N, 2)."""
    return np.array([(e.traveled_query_m, e.traveled_match_m) for e in entries])


@dataclass(frozen=True, eq=False)
class Families:
    """What is known about F families, as log-odds and log-likelihood ratios."""

    own: NDArray[np.float64]  # (F,), of descriptor and geometry over all looks
    odometry: NDArray[np.float64]  # (F,), of the cycle with odometry alone
    between: NDArray[np.float64]  # (F, F), of the cycle of two families; 0 on the diagonal
    structure_m: NDArray[np.float64]  # (F,), new structure seen
    is_same_stretch: NDArray[np.bool_]  # (F, F), whether both place the same stretch of the way
    deceptive: float = -np.inf  # own evidence of the worst family refuted before and forgotten
    has_odometry: bool = True  # that joins query and match, so that looks are not all there is

    def most_deceptive(self) -> float:
        """Return the own evidence of the wrong family that looks best.

        A family is wrong if odometry refutes it. Of two that place the same stretch differently,
        one is wrong, and the one that looks worse shows how well a wrong one can look.
        """
        refuted = self.own[self.odometry < REFUTED]
        one_of_two = np.minimum(self.own[:, None], self.own)
        is_one_wrong = self.is_same_stretch & (self.between < REFUTED) & self.has_odometry
        one_of_two = one_of_two[is_one_wrong]
        return float(np.concatenate([refuted, one_of_two]).max(initial=self.deceptive))


def weigh(families: Families) -> NDArray[np.float64]:
    """Return the log-odds (F,) of each family against its rivals and "none".

    The best set of families that do not contradict each other is taken to be right. What supports
    or contradicts a family is that set and the odometry.
    """
    limit = looks_limit(families)
    best = best_set(families, limit)
    others = np.where(best.members, families.between, 0.0)
    support = np.maximum(families.odometry, others.max(axis=1)).clip(min=0.0)
    against = families.odometry.clip(max=0.0) + others.min(axis=1).clip(max=0.0)
    looks = np.minimum(families.own, limit)
    first = FIRST_LOOKS if families.has_odometry else FIRST_LOOKS_BETWEEN_SESSIONS
    looks = np.minimum(looks, first + LOOKS_PER_M * families.structure_m)
    log_odds: NDArray[np.float64] = np.where(
        best.members,
        np.minimum(looks + support, min(best.evidence, best.limit) + best.odometry),
        looks + support + against,
    )
    if limit < MAX_LOOKS:
        return log_odds  # rivals look alike anyway: only the odometry tells them apart
    # A rival leads to another set: by so much, the best one is better.
    is_rival = families.is_same_stretch & (families.between < 0.0) & (families.own > 0.0)
    for rival in np.flatnonzero(is_rival[best.members].any(axis=0) & ~best.members):
        margin = best.margin_over(_grow_set(families, int(rival), limit))
        log_odds = np.where(best.members & is_rival[rival], np.minimum(log_odds, margin), log_odds)
    return log_odds


def looks_limit(families: Families) -> float:
    """Return how much looks alone can say in this session, however long a family is.

    Families that odometry refutes show what wrong ones look like here. Where they look right,
    structure repeats, and looks say less.
    """
    low, high = DECEPTIVE_LOOKS
    doubt = float(np.clip((families.most_deceptive() - low) / (high - low), 0.0, 1.0))
    return MAX_LOOKS + doubt * (MAX_DECEPTIVE_LOOKS - MAX_LOOKS)


@dataclass(frozen=True, eq=False)
class FamilySet:
    """Families that do not contradict each other, and what speaks for all of them together."""

    members: NDArray[np.bool_]  # (F,)
    evidence: float  # of looks and of how well the members agree
    odometry: float  # log-likelihood ratio of the odometry
    limit: float  # of the evidence: a neighborhood may be built twice

    def margin_over(self, other: 'FamilySet') -> float:
        """Return the log-odds against another set."""
        return self.evidence + self.odometry - other.evidence - other.odometry


def best_set(families: Families, limit: float) -> FamilySet:
    """Return the set of families that explains all loop closures best.

    A set that odometry contradicts is rarely the best: the evidence for it has a limit, which the
    number of its members does not show.
    """
    seeds = np.argsort(-(families.own + families.odometry), kind='stable')[:MAX_SEEDS]
    sets = [_grow_set(families, int(seed), limit) for seed in seeds]
    return max(
        sets,
        key=lambda x: x.evidence + x.odometry * (ODOMETRY_WEIGHT if x.odometry < 0.0 else 1.0),
    )


def _grow_set(families: Families, seed: int, limit: float) -> FamilySet:
    """Add families to a seed as long as one fits.

    Each adds its own evidence and its best support by another member, which is all that is
    independent, minus the worst contradiction by odometry and by other members.
    """
    members: NDArray[np.bool_] = np.zeros(len(families.own), dtype=bool)
    support, against = np.zeros(len(members)), families.odometry.clip(max=0.0)
    evidence, strongest, gain = 0.0, seed, families.own[seed]
    while gain > 0.0 or not members.any():
        members[strongest] = True
        evidence += gain
        support = np.maximum(support, families.between[strongest])
        against = np.minimum(against, families.between[strongest])
        gains = np.where(members, -np.inf, families.own + support + against)
        strongest = int(gains.argmax())
        gain = gains[strongest]
    odometry = families.odometry[members]
    built_twice = limit + float(families.structure_m[members].sum()) / BUILT_TWICE_M
    return FamilySet(
        members,
        float(evidence),
        float(odometry.min() if odometry.min() < 0.0 else odometry.max()),
        built_twice,
    )


def new_structure_m(positions: NDArray[np.float64]) -> float:
    """Return how much of the way (N, 3) is new: the same spot seen again adds nothing."""
    gaps_m = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    gaps_m[np.triu_indices(len(positions))] = np.inf  # only spots before count
    return float(np.minimum(gaps_m[1:].min(axis=1, initial=np.inf), STRUCTURE_M).sum())


def cycles(
    entry: Evidence, others: list[Evidence], noise: OdometryNoiseConfig
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return error (N, 6) and covariance (N, 6, 6) of the cycle with each other loop closure.

    The cycle: from the match to the query of this loop closure, along odometry to the other
    query, through the other loop closure to its match, and along odometry back to the start.
    """
    T_query1_query2 = invert(entry.T_query) @ np.stack([o.T_query for o in others])
    T_match2_match1 = invert(np.stack([o.T_match for o in others])) @ entry.T_match
    T_query2_match2 = invert(np.stack([o.loop.T_match_query for o in others]))
    T_query2_match1 = T_query2_match2 @ T_match2_match1
    T_query1_match1 = T_query1_query2 @ T_query2_match1
    error = local_error(entry.loop.T_match_query @ T_query1_match1, np.eye(4))
    queries_m = np.array([abs(o.traveled_query_m - entry.traveled_query_m) for o in others])
    matches_m = np.array([abs(o.traveled_match_m - entry.traveled_match_m) for o in others])
    second = np.stack([o.loop.covariance for o in others]) + drift_covariance(queries_m, noise)
    covariance = (
        propagate(adjoint(invert(T_query1_match1)), entry.loop.covariance)
        + propagate(adjoint(invert(T_query2_match1)), second)
        + drift_covariance(matches_m, noise)
    )
    return error, covariance


def odometry_cycle(
    entry: Evidence, noise: OdometryNoiseConfig
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return error (1, 6) and covariance (1, 6, 6) of a loop closure within a session."""
    error = local_error(invert(entry.T_match) @ entry.T_query, entry.loop.T_match_query)
    traveled_m = abs(entry.traveled_query_m - entry.traveled_match_m)
    covariance = drift_covariance(traveled_m, noise) + entry.loop.covariance
    return error[None], covariance[None]


def squared_distance(
    error: NDArray[np.float64], covariance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the squared Mahalanobis distances (N,)."""
    weighted = np.linalg.solve(covariance, error[..., None])[..., 0]
    squared: NDArray[np.float64] = np.einsum('ni,ni->n', error, weighted)
    return squared


def log_ratio(error: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-likelihood ratio (N,) of errors: only noise, or also a wrong place.

    The noise may be larger than it is said to be, so its tails are heavier than Gaussian.
    """
    ratios = [
        log_weight + _gaussian_ratio(error, factor**2 * covariance)
        for factor, log_weight in zip(NOISE_FACTORS, np.log(NOISE_WEIGHTS), strict=True)
    ]
    ratio: NDArray[np.float64] = logsumexp(ratios, axis=0)
    return ratio


def _gaussian_ratio(
    error: NDArray[np.float64], covariance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the log-likelihood ratio (N,) for Gaussian noise of known covariance."""
    position, heading = slice(0, 3), slice(5, 6)
    placed = _spread_ratio(
        error[:, position], covariance[:, position, position], np.diag(np.square(LOOK_ALIKE_M))
    )
    turned = _spread_ratio(
        error[:, heading], covariance[:, heading, heading], np.eye(1) * np.square(np.pi / 2)
    )
    # The right heading proves nothing: look-alike streets and houses are parallel.
    ratio: NDArray[np.float64] = placed + np.minimum(turned, 0.0)
    return ratio


def _spread_ratio(
    error: NDArray[np.float64], covariance: NDArray[np.float64], spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return log N(error; C) - log N(error; C + spread)."""
    ratio = np.zeros(len(error))
    for sign, matrix in ((1.0, covariance), (-1.0, covariance + spread)):
        _, log_determinant = np.linalg.slogdet(matrix)
        ratio -= 0.5 * sign * (squared_distance(error, matrix) + log_determinant)
    return ratio
