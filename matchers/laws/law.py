"""The law of an operation: what it does to its tensors, without any log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Amplifies", "Bucket", "Collective", "Form", "Kind", "Law"]


class Form(Enum):
    """The arithmetic of an operation, in place, on lists or not."""

    OTHER = auto()
    ADD = auto()
    SUBTRACT = auto()
    MULTIPLY = auto()
    DIVIDE = auto()
    NEGATE = auto()
    POWER = auto()
    INVERSE_ROOT = auto()
    SUM = auto()
    MEAN = auto()
    NORM = auto()
    REDUCTION = auto()
    """Another sum over a dimension: a variance, a log of exponentials."""
    PRODUCT = auto()
    """A matrix product."""
    JOIN = auto()
    """Tensors beside each other in one."""
    LOOKUP = auto()
    """Elements or rows at given positions."""
    MASK = auto()
    """Some elements are set."""
    FILL = auto()
    """A tensor is copied into another."""
    RANK = auto()
    """Values and their positions, in an order that the values decide."""
    UPDATE = auto()
    """A whole step of an optimizer."""


class Amplifies(Enum):
    """Why an operation may enlarge the relative error of its inputs more than a product does."""

    LITTLE = auto()
    BY_EXPONENT = auto()
    NEAR_A_SIGN = auto()
    """In the first steps an Adam update is close to the sign of the gradient, which flips where that is rounding."""
    HIDDEN_SCORES = auto()
    """Fused attention hides an exponential of scores that nobody recorded."""


class Kind(str, Enum):
    """Kinds of communication; `WAIT` ends one that was started."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SCATTER = "scatter"
    GATHER = "gather"
    BARRIER = "barrier"
    SEND = "send"
    RECEIVE = "receive"
    WAIT = "wait"

    def __str__(self) -> str:
        return self.value

    @property
    def reduces(self) -> bool:
        """True if it adds up what ranks have, or takes the largest."""
        return self in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.REDUCE)


class Bucket(Enum):
    """The part of an operation in communication that is none itself."""

    FILLED = auto()
    """It fills a flat buffer that is sent."""
    GATHERED = auto()
    """It fills one, and one of its outputs is the buffer that a later collective fills."""
    CUT = auto()
    """It cuts what was received."""
    HANDLE = auto()
    """It makes a handle of a tensor that is awaited later."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective, a send, a receive or a wait.

    Attributes:
        lowered: the in-place collective that does the same as this functional one; empty for others.
    """

    kind: Kind
    lowered: str = ""

    @property
    def in_place(self) -> bool:
        """True for the collectives of c10d, whose result comes first and their input last."""
        return not self.lowered and self.kind not in (Kind.WAIT, Kind.SEND, Kind.BARRIER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The effect of an operation on its tensors. The defaults are those of an operation that nobody knows.

    Attributes:
        base: its name without the marks of lists and of writing in place: `add` for `_foreach_add_`.
        pointwise: each element of the result is computed of the elements at its place.
        writes: positions of the tensors that it changes.
        passes_on: position of the tensor whose elements are the result, in this or another shape, order or dtype.
        aliases: the result is memory of that tensor.
        casts: the result has a dtype of its own.
        gates: a sign, or which of some elements is the largest, decides whether an element passes.
        selects: each element of the result is one of an input, or a constant.
        on_lists: it takes lists of tensors, and gives or changes a list.
        random: it draws random numbers.
        may_drop: it draws them if it is asked to drop out.
        nondeterministic: on some device it adds up in an order that may be another one each time, or picks a kernel by
            what else happens (free memory).
        enters: its result are numbers of Python, or memory of another library: it reads no tensor.
        blind: no element of a tensor decides its result, though a shape may.
        shapes: positions of the tensors of which the shape alone decides the result.
        unwritten: the result is memory that nothing has been written to.
        determined: its tensors decide the result: no number is given that a rank may choose by itself.
        data_decides: the values decide the shape of the result, and so what comes next.
        over_batch: it computes a statistic of the batch.
        extreme: its result is the largest or the smallest of the elements that it reads.
        factor: position of the first factor, (…, M, K), of a matrix product.
        tokens: position of the indices by which it looks rows up.
        totals: numbers of the outputs that are sums of its first input, perhaps times numbers of unit variance: the
            gradients of the weight and the bias of a norm.
        mean: number of the output that is the mean of its first input, over some of its dimensions.
        running_mean: position of a running mean that it moves towards that.
        results: number of its outputs, the first ones, that are results; what follows is memory for its backward pass
            alone, which its kernel fills as it likes, or not at all.
        width: position of the tensor, the queries, whose last dimension decides `scale` where that is not given.
        adds_rows: its result are sums of rows of its first input, at places that another one gives.
        of_scores: the magnitude of the argument is the factor by which its error grows.
    """

    base: str = ""
    form: Form = Form.OTHER
    pointwise: bool = False
    writes: tuple[int, ...] = ()
    passes_on: int | None = None
    aliases: bool = False
    casts: bool = False
    gates: bool = False
    selects: bool = False
    on_lists: bool = False
    random: bool = False
    may_drop: bool = False
    nondeterministic: bool = False
    enters: bool = False
    blind: bool = False
    shapes: tuple[int, ...] = ()
    unwritten: bool = False
    determined: bool = False
    data_decides: bool = False
    over_batch: bool = False
    extreme: bool = False
    factor: int | None = None
    tokens: int | None = None
    totals: tuple[int, ...] = ()
    mean: int | None = None
    running_mean: int | None = None
    results: int | None = None
    width: int | None = None
    adds_rows: bool = False
    of_scores: bool = False
    amplifies: Amplifies = Amplifies.LITTLE
    collective: Collective | None = None
    bucket: Bucket | None = None

    @property
    def in_place(self) -> bool:
        """True if it returns the tensor that it changes."""
        return 0 in self.writes or (self.collective is not None and self.collective.in_place)

    @property
    def by_element(self) -> bool:
        """True if there is no sum that could be added up in another order."""
        return self.pointwise or self.exact or self.blind or self.form in (Form.JOIN, Form.UPDATE)

    @property
    def repeats(self) -> bool:
        """True if one build of torch on one device makes the same bits of the same bits each time."""
        varies = self.random or self.may_drop or self.nondeterministic or self.unwritten or self.enters
        return not (varies or self.communicates or self.on_lists)

    @property
    def exact(self) -> bool:
        """True if each element of the result is one of an input, rounded to the result's dtype at most."""
        return self.copies or self.selects

    @property
    def copies(self) -> bool:
        """True if it hands on what it reads: views, splits, clones and casts."""
        return self.passes_on is not None

    @property
    def passes_elements(self) -> bool:
        """True if it copies elements in new memory, perhaps beside others (a mask) so large that they hide an error."""
        return self.selects or (self.moves and not self.communicates)

    @property
    def constant(self) -> bool:
        return self.blind and not self.random

    @property
    def kind(self) -> Kind | None:
        """The kind of collective; None for other operations."""
        return None if self.collective is None else self.collective.kind

    @property
    def communicates(self) -> bool:
        """True if it starts, performs or awaits a collective."""
        return self.collective is not None

    @property
    def reduces(self) -> bool:
        """True for a collective that adds up what ranks have, or takes the largest."""
        return self.kind is not None and self.kind.reduces

    @property
    def waits(self) -> bool:
        return self.kind is Kind.WAIT

    @property
    def lowered(self) -> str:
        """The in-place collective that does the same as this functional one; empty for others."""
        return "" if self.collective is None else self.collective.lowered

    @property
    def moves(self) -> bool:
        """True if it only moves data between ranks, or arranges in new memory what they send and receive."""
        copies = self.copies and not (self.aliases or self.casts)
        arranges = copies or self.form == Form.JOIN or self.bucket not in (None, Bucket.HANDLE)
        return arranges or (self.communicates and not self.reduces)

    @property
    def commutes(self) -> bool:
        """True if its two tensors may come in either order."""
        return self.form in (Form.ADD, Form.MULTIPLY) and not self.on_lists

    @property
    def scales(self) -> bool:
        """True if it multiplies or divides element by element."""
        return self.form in (Form.MULTIPLY, Form.DIVIDE)

    @property
    def linear(self) -> bool:
        """True if terms of a sum stay terms of it: what it makes of them adds up as they do."""
        by_element = self.scales or self.form in (Form.NEGATE, Form.MASK)
        return (by_element and not self.on_lists) or self.keeps_terms

    @property
    def keeps_terms(self) -> bool:
        """True if it adds or arranges what it reads."""
        return self.form in (Form.ADD, Form.JOIN) or self.copies or self.bucket in (Bucket.FILLED, Bucket.GATHERED)
