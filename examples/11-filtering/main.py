"""Handlers that want some of the objects, or some of the changes, only."""

import trioperator


def is_short(value: str | None, **_: object) -> bool:
    return value is not None and len(value) < 10


def is_example(name: str, **_: object) -> bool:
    return name.startswith("kopf-example-")


@trioperator.on.create("kopfexamples", labels={"somelabel": "somevalue"}, annotations={"someannotation": is_short})
def by_values(logger: trioperator.Logger) -> None:
    logger.info("The label has this value, and the annotation is short.")


@trioperator.on.create("kopfexamples", labels={"somelabel": trioperator.PRESENT, "otherlabel": trioperator.ABSENT})
def by_presence(logger: trioperator.Logger) -> None:
    logger.info("One label is there, and the other one is not.")


@trioperator.on.create("kopfexamples", labels={"somelabel": "othervalue"})
def never(logger: trioperator.Logger) -> None:
    logger.error("The label has another value, so this is not called.")


@trioperator.on.create("kopfexamples", field="spec.field", value="value")
def by_field(logger: trioperator.Logger) -> None:
    logger.info("The field has this value.")


@trioperator.on.create("kopfexamples", when=trioperator.all_([is_example, trioperator.not_(lambda uid, **_: not uid)]))
def by_callback(logger: trioperator.Logger) -> None:
    logger.info("The callbacks agree.")


@trioperator.on.update("kopfexamples", field="spec.field", old="value", new=trioperator.not_(is_short))
def by_change(old: str, new: str, logger: trioperator.Logger) -> None:
    logger.info("The field has changed from %s to %s.", old, new)


@trioperator.on.update("kopfexamples", field="spec.field", new=trioperator.ABSENT)
def by_removal(old: str, logger: trioperator.Logger) -> None:
    logger.info("The field is removed; it was %s.", old)
