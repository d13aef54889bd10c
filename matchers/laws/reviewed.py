"""Facts that torch's tags and schemas do not state: reviewed by people, each entry with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from matchers.laws.law import Amplifies, Bucket, Collective, Form, Kind

__all__ = ["REVIEWED"]


class _Entry(NamedTuple):
    """Attributes of `Law` that some operations have, and why.

    An operation in place or on lists has most of those of its base name: `add_` and `_foreach_add` those of `add`.
    """

    why: str
    names: str
    attributes: Mapping[str, Any]


def _sends(kind: Kind, names: str, lowered: str = "") -> _Entry:
    return _Entry(
        f"does {kind} by its documentation", names, {"collective": Collective(kind, lowered), "on_lists": False}
    )


_ARITHMETIC: Final = (
    _Entry("adds its tensors", "add", {"form": Form.ADD}),
    _Entry("adds the second with the other sign", "sub", {"form": Form.SUBTRACT}),
    _Entry("multiplies element by element", "mul", {"form": Form.MULTIPLY}),
    _Entry("divides by a common scale in place", "_amp_foreach_non_finite_check_and_unscale", {"form": Form.MULTIPLY}),
    _Entry("multiplies by the inverse", "div", {"form": Form.DIVIDE}),
    _Entry("changes the sign", "neg", {"form": Form.NEGATE}),
    _Entry("a power amplifies by its exponent", "pow", {"form": Form.POWER, "amplifies": Amplifies.BY_EXPONENT}),
    _Entry("a square enlarged by its inverse root", "rsqrt", {"form": Form.INVERSE_ROOT}),
    _Entry("adds up along dimensions", "sum", {"form": Form.SUM}),
    _Entry("adds up and divides by the number", "mean", {"form": Form.MEAN}),
    _Entry("the root of a sum of powers", "linalg_vector_norm norm", {"form": Form.NORM}),
    _Entry("sums of other terms", "nansum logsumexp var std prod", {"form": Form.REDUCTION}),
    _Entry("a row of a table has the gradients of all its readers", "embedding_dense_backward", {"adds_rows": True}),
    _Entry("rows times columns; the first factor comes first", "mm bmm linear", {"form": Form.PRODUCT, "factor": 0}),
    _Entry("the product is added to the first tensor", "addmm baddbmm", {"form": Form.PRODUCT, "factor": 1}),
    _Entry(
        "exponentials turn an absolute error into a relative one",
        "_softmax _log_softmax softmax log_softmax logsumexp exp",
        {"of_scores": True},
    ),
    _Entry("a quotient of moments near 1", "addcdiv", {"amplifies": Amplifies.NEAR_A_SIGN}),
    _Entry(
        "one step of an optimizer, element by element",
        "_fused_adagrad _fused_adam _fused_adamw _fused_sgd",
        {"form": Form.UPDATE},
    ),
    _Entry(
        "divides by the root of the second moment", "_fused_adam _fused_adamw", {"amplifies": Amplifies.NEAR_A_SIGN}
    ),
)

_FUSED_ATTENTION: Final = (
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable"
)

_RANDOM: Final = (
    _Entry(
        "tagged random, but draws only with a dropout probability above 0",
        f"{_FUSED_ATTENTION} _scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps "
        "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention_backward "
        "_triton_scaled_dot_attention scaled_dot_product_attention _flash_attention_forward "
        "_flash_attention_forward_no_dropout_inplace _efficient_attention_forward _cudnn_attention_forward "
        "_cudnn_attention_forward_no_dropout_inplace _cudnn_rnn _lstm_mps gru lstm miopen_rnn rnn_relu rnn_tanh",
        {"random": False, "may_drop": True},
    ),
    _Entry(
        "repeats what its forward pass drops out",
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_fused_attention_overrideable_backward",
        {"may_drop": True},
    ),
    _Entry(
        "computes the exponential of scores that no record has",
        _FUSED_ATTENTION,
        {"amplifies": Amplifies.HIDDEN_SCORES},
    ),
    _Entry(
        "divides by the root of the queries' width, where no scale is given",
        f"{_FUSED_ATTENTION} _scaled_dot_product_attention_math scaled_dot_product_attention _flash_attention_forward "
        "_efficient_attention_forward _cudnn_attention_forward",
        {"width": 0},
    ),
    _Entry(
        "and so does its derivative, which reads the gradient before them",
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
        "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_fused_attention_overrideable_backward _flash_attention_backward "
        "_efficient_attention_backward _cudnn_attention_backward",
        {"width": 1},
    ),
)

_ELEMENTS: Final = (
    _Entry(
        "untagged, but computed element by element",
        "hardswish hardswish_backward hardsigmoid_backward hardtanh_backward leaky_relu_backward elu_backward "
        "softplus_backward mish_backward log_sigmoid log_sigmoid_forward log_sigmoid_backward prelu _prelu_kernel "
        "complex fill polar rsub zero",
        {"pointwise": True},
    ),
    _Entry(
        "passes a gradient on where the activation passed its input",
        "threshold_backward hardtanh_backward leaky_relu_backward _prelu_kernel_backward hardsigmoid_backward "
        "hardswish_backward hardshrink_backward softshrink_backward rrelu_with_noise_backward sgn sign "
        "max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward "
        "adaptive_max_pool3d_backward",
        {"gates": True},
    ),
)

_COPIES: Final = (
    _Entry("a copy of its own", "clone", {"passes_on": 0}),
    _Entry("a copy of its own where the layout is another", "contiguous", {"aliases": False}),
    _Entry("a number for Python", "_local_scalar_dense item", {"passes_on": 0}),
    _Entry("a copy in another dtype, on another device", "_to_copy type_as", {"passes_on": 0, "casts": True}),
    _Entry("copies if it must", "to", {"casts": True}),
    _Entry("a view that autograd does not follow", "_unsafe_view", {"passes_on": 0, "aliases": True}),
    _Entry("the second tensor's elements into the first", "copy_", {"form": Form.FILL}),
    _Entry("the same as a function", "copy", {"passes_on": 1}),
    _Entry("lists of tensors into others", "_foreach_copy _foreach_copy_", {"pointwise": True, "form": Form.FILL}),
    _Entry(
        "views of a part, or in new memory",
        "split_with_sizes_copy split_copy unbind_copy slice_copy select_copy view_copy permute_copy transpose_copy "
        "expand_copy squeeze_copy unsqueeze_copy t_copy detach_copy alias_copy as_strided_copy narrow_copy "
        "diagonal_copy unfold_copy lift_fresh_copy _reshape_alias_copy",
        {"aliases": False},
    ),
    _Entry("writes one tensor into a part of another", "slice_scatter", {"passes_on": None, "aliases": False}),
    _Entry("tensors beside each other", "cat stack", {"form": Form.JOIN}),
    _Entry(
        "each element is one of an input, or a constant",
        "cat clamp constant_pad_nd flip gather index index_select masked_fill maximum minimum pad roll select_scatter "
        "slice_backward select_backward slice_scatter stack tril triu where embedding repeat_interleave repeat",
        {"selects": True},
    ),
    _Entry("rows or elements at given positions", "embedding gather index index_select", {"form": Form.LOOKUP}),
    _Entry("its second tensor are tokens", "embedding", {"tokens": 1}),
    _Entry("some elements are set", "index_put masked_fill where", {"form": Form.MASK}),
    _Entry(
        "values and their positions",
        "topk sort msort kthvalue max min median nanmedian mode cummax cummin",
        {"form": Form.RANK},
    ),
    _Entry("the largest of each tensor, without positions", "_foreach_max", {"form": Form.OTHER}),
)

_WITHOUT_VALUES: Final = (
    _Entry("a workspace, or a reserve", "mkldnn_rnn_layer cudnn_batch_norm _batch_norm_with_update", {"results": 3}),
    _Entry("a reserve, and the weights in one buffer", "_cudnn_rnn miopen_rnn", {"results": 3}),
    _Entry(
        "a state of the random generator behind, which is not written where nothing is drawn",
        f"{_FUSED_ATTENTION} _flash_attention_forward _flash_attention_forward_no_dropout_inplace "
        "_efficient_attention_forward _cudnn_attention_forward _cudnn_attention_forward_no_dropout_inplace",
        {"results": 2},
    ),
    _Entry(
        "numbers of Python, or memory of another library, as a tensor",
        "lift_fresh",
        {"passes_on": None, "aliases": False, "enters": True},
    ),
    _Entry(
        "reads a shape, no values",
        "empty_like full_like ones_like zeros_like rand_like randn_like randint_like new_empty new_empty_strided "
        "new_full new_ones new_zeros",
        {"blind": True},
    ),
    _Entry(
        "reads the shape of what its forward pass was given",
        "nll_loss_backward nll_loss2d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward "
        "avg_pool2d_backward avg_pool3d_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward",
        {"shapes": (1,)},
    ),
    _Entry("constants on a range", "linspace logspace", {"blind": True}),
    _Entry("reads the file, not a tensor; nobody knows what is in it", "from_file", {"blind": False}),
    _Entry(
        "memory that nothing has been written to",
        "empty empty_like empty_strided empty_permuted new_empty new_empty_strided",
        {"unwritten": True},
    ),
)

_VARIES: Final = (
    _Entry(
        "adds with atomics on a GPU by torch.use_deterministic_algorithms' documentation",
        "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward _ctc_loss_backward _embedding_bag_backward "
        "_embedding_bag_dense_backward _embedding_bag_per_sample_weights_backward _index_put_impl_ _unsafe_index_put "
        "_upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa_backward adaptive_max_pool2d_backward "
        "adaptive_max_pool3d_backward avg_pool3d_backward bincount cumsum embedding_dense_backward "
        "fractional_max_pool2d_backward fractional_max_pool3d_backward grid_sampler_2d_backward "
        "grid_sampler_3d_backward histc index_add index_put index_reduce max_pool2d_with_indices_backward "
        "max_pool3d_with_indices_backward max_unpool2d max_unpool3d nll_loss2d_backward nll_loss2d_forward put "
        "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward "
        "replication_pad2d_backward replication_pad3d_backward scatter_add scatter_reduce upsample_bicubic2d_backward "
        "upsample_bilinear2d_backward upsample_linear1d_backward upsample_trilinear3d_backward",
        {"nondeterministic": True},
    ),
    _Entry(
        "adds the queries' gradient with atomics, unless told not to",
        "_efficient_attention_backward _flash_attention_backward _scaled_dot_product_cudnn_attention_backward "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention_backward",
        {"nondeterministic": True},
    ),
    _Entry(
        "picks a kernel by the memory that is free",
        "convolution convolution_backward cudnn_batch_norm cudnn_batch_norm_backward cudnn_convolution "
        "cudnn_convolution_transpose",
        {"nondeterministic": True},
    ),
)

_DECIDED: Final = (
    _Entry(
        "its other arguments are dimensions, sizes and eps, which no rank chooses by itself",
        "embedding convolution native_layer_norm _fused_rms_norm _softmax _log_softmax _softmax_backward_data sum mean "
        "cumsum mm bmm addmm baddbmm linear matmul",
        {"determined": True},
    ),
    _Entry("of a mask only; indices say the shape", "index", {"data_decides": False}),
    _Entry("of its rank only; the shapes are those of its inputs", "linalg_lstsq", {"data_decides": False}),
    _Entry(
        "the largest or smallest of all elements, or along a dimension",
        "amax amin aminmax _aminmax max min",
        {"extreme": True},
    ),
    _Entry("positions or counts by which modules are chosen, such as experts", "topk histc", {"data_decides": True}),
    _Entry(
        "normalizes by statistics of the batch",
        "batch_norm _batch_norm_impl_index _batch_norm_impl_index_backward _batch_norm_no_update "
        "_batch_norm_with_update _batch_norm_with_update_functional _native_batch_norm_legit "
        "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training batch_norm_backward "
        "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats "
        "batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats cudnn_batch_norm "
        "cudnn_batch_norm_backward miopen_batch_norm miopen_batch_norm_backward native_batch_norm "
        "native_batch_norm_backward",
        {"over_batch": True},
    ),
    _Entry(
        "sums its first input up for the gradient of the bias",
        "convolution_backward",
        {"totals": (2,)},
    ),
    _Entry(
        "and, times what it normalizes, for that of the weight",
        "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward batch_norm_backward",
        {"totals": (1, 2)},
    ),
    _Entry(
        "returns the mean of its first input beside the result",
        "native_layer_norm native_group_norm var_mean std_mean _native_batch_norm_legit_functional "
        "_batch_norm_with_update_functional",
        {"mean": 1},
    ),
    _Entry(
        "and moves a running mean towards it",
        "native_batch_norm _native_batch_norm_legit _batch_norm_with_update cudnn_batch_norm miopen_batch_norm",
        {"mean": 1, "running_mean": 3},
    ),
)

_COMMUNICATION: Final = (
    _sends(Kind.ALL_REDUCE, "all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_", "allreduce_"),
    _sends(Kind.ALL_REDUCE, "allreduce_ allreduce_coalesced_"),
    _sends(
        Kind.ALL_GATHER,
        "all_gather_into_tensor all_gather_into_tensor_out all_gather_into_tensor_coalesced",
        "_allgather_base_",
    ),
    _sends(Kind.ALL_GATHER, "_allgather_base_ allgather_ allgather_coalesced_ allgather_into_tensor_coalesced_"),
    _sends(
        Kind.REDUCE_SCATTER,
        "reduce_scatter_tensor reduce_scatter_tensor_out reduce_scatter_tensor_coalesced",
        "_reduce_scatter_base_",
    ),
    _sends(Kind.REDUCE_SCATTER, "_reduce_scatter_base_ reduce_scatter_ reduce_scatter_tensor_coalesced_"),
    _sends(Kind.ALL_TO_ALL, "all_to_all_single", "alltoall_base_"),
    _sends(Kind.ALL_TO_ALL, "alltoall_base_ alltoall_"),
    _sends(Kind.BROADCAST, "broadcast", "broadcast_"),
    _sends(Kind.BROADCAST, "broadcast_"),
    _sends(Kind.REDUCE, "reduce_"),
    _sends(Kind.GATHER, "gather_"),
    # torch has an operation of this name that sends nothing
    _sends(Kind.SCATTER, "c10d::scatter_"),
    _sends(Kind.BARRIER, "barrier"),
    _sends(Kind.SEND, "send"),
    _sends(Kind.RECEIVE, "recv_ recv_any_source_"),
    _sends(Kind.WAIT, "wait_tensor wait_tensors"),
    _Entry("fills the flat buffer of a reduce-scatter", "chunk_cat", {"form": Form.JOIN, "bucket": Bucket.FILLED}),
    _Entry("fills that of an all-gather, and returns it", "all_gather_copy_in", {"bucket": Bucket.GATHERED}),
    _Entry("cuts the tensors out of what was gathered", "split_with_sizes_copy", {"bucket": Bucket.CUT}),
    _Entry("wraps a tensor that is awaited when it is used", "_wrap_tensor_autograd", {"bucket": Bucket.HANDLE}),
)

REVIEWED: Final = (
    *_ARITHMETIC, *_RANDOM, *_ELEMENTS, *_COPIES, *_WITHOUT_VALUES, *_VARIES, *_DECIDED, *_COMMUNICATION,
)  # fmt: skip
