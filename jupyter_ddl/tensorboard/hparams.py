"""The messages of TensorBoard's HParams page: what was searched, and what each trial got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_ddl.spec.space import Choice, Distribution, ParamValue, RandInt, Space, Uniform

if TYPE_CHECKING:
    from jupyter_ddl.spec.run import SearchSpec

__all__ = ["experiment", "session_end", "session_start"]


def experiment(verb: SearchSpec, at_s: float) -> Any:
    """The summary that names parameters, their domains and the metric of a search."""
    from tensorboard.plugins.hparams import api_pb2
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    metric = api_pb2.MetricInfo(name=api_pb2.MetricName(tag=verb.metric))
    message = api_pb2.Experiment(
        hparam_infos=[_info(name, dist) for name, dist in verb.space.items()],
        metric_infos=[metric],
        time_created_secs=at_s,
    )
    return _summary("experiment", HParamsPluginData(experiment=message))


def session_start(params: dict[str, ParamValue], space: Space, group: str, at_s: float) -> Any:
    """The summary that opens a trial."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

    start = SessionStartInfo(group_name=group, start_time_secs=at_s)
    for name, value in params.items():
        field, plain = _plain(value, space.get(name))
        setattr(start.hparams[name], field, plain)
    return _summary("session_start_info", HParamsPluginData(session_start_info=start))


def session_end(outcome: str, at_s: float) -> Any:
    """The summary that closes a trial; ``outcome`` as in ``AttemptFinished``."""
    from tensorboard.plugins.hparams import api_pb2
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    is_good = outcome in ("complete", "pruned")
    status = api_pb2.STATUS_SUCCESS if is_good else api_pb2.STATUS_FAILURE
    end = SessionEndInfo(status=status, end_time_secs=at_s)
    return _summary("session_end_info", HParamsPluginData(session_end_info=end))


def _info(name: str, dist: Distribution) -> Any:
    from tensorboard.plugins.hparams import api_pb2

    info = api_pb2.HParamInfo(name=name)
    match dist:
        case Uniform(low=low, high=high) | RandInt(low=low, high=high):
            info.type = api_pb2.DATA_TYPE_FLOAT64
            info.domain_interval.min_value = low
            info.domain_interval.max_value = high
        case Choice(values=values):
            kinds = {_plain(value, dist)[0] for value in values}
            kind = kinds.pop() if len(kinds) == 1 else "string_value"
            info.type = {
                "bool_value": api_pb2.DATA_TYPE_BOOL,
                "number_value": api_pb2.DATA_TYPE_FLOAT64,
                "string_value": api_pb2.DATA_TYPE_STRING,
            }[kind]
            for value in values:
                setattr(info.domain_discrete.values.add(), *_plain(value, dist))
    return info


def _plain(value: ParamValue, dist: Distribution | None) -> tuple[str, bool | float | str]:
    """A value, and the field of a protobuf ``Value`` that it goes to.

    HParams wants one type per parameter: choices of several types become text.
    """
    if isinstance(dist, Choice) and len({_field(each) for each in dist.values}) > 1:
        return "string_value", str(value)
    if isinstance(value, bool | str):
        return _field(value), value
    return (_field(value), str(value)) if value is None else (_field(value), float(value))


def _field(value: ParamValue) -> str:
    if isinstance(value, bool):
        return "bool_value"
    return "number_value" if isinstance(value, int | float) else "string_value"


def _summary(kind: str, data: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams import metadata

    data.version = metadata.PLUGIN_DATA_VERSION
    plugin = SummaryMetadata.PluginData(
        plugin_name=metadata.PLUGIN_NAME, content=data.SerializeToString(deterministic=True)
    )
    tag = f"_hparams_/{kind}"
    tensor = metadata.NULL_TENSOR
    told = SummaryMetadata(plugin_data=plugin)
    return Summary(value=[Summary.Value(tag=tag, metadata=told, tensor=tensor)])
