"""Handlers for only some of the objects, or only some of the changes."""

import trioperator


def is_short(value: str | None, **_: object) -> bool:
    return value is not None and len(value) < 10


def is_example(name: str, **_: object) -> bool:
    return name.startswith("kopf-example-")


@trioperator.on.create("kopfexamples", labels={"somelabel": "somevalue"}, annotations={"someannotation": is_short})
def by_values(logger: trioperator.Logger) -> None:
    logger.info("The label matches, and the annotation is short.")


@trioperator.on.create("kopfexamples", labels={"somelabel": trioperator.PRESENT, "otherlabel": trioperator.ABSENT})
def by_presence(logger: trioperator.Logger) -> None:
    logger.info("One label is present, and the other is absent.")


@trioperator.on.create("kopfexamples", labels={"somelabel": "othervalue"})
def never(logger: trioperator.Logger) -> None:
    logger.error("Not called, because the label has another value.")


@trioperator.on.create("kopfexamples", field="spec.field", value="value")
def by_field(logger: trioperator.Logger) -> None:
    logger.info("The field matches.")


@trioperator.on.create("kopfexamples", when=trioperator.all_([is_example, trioperator.not_(lambda uid, **_: not uid)]))
def by_callback(logger: trioperator.Logger) -> None:
    logger.info("The callbacks match.")


@trioperator.on.update("kopfexamples", field="spec.field", old="value", new=trioperator.not_(is_short))
def by_change(old: str, new: str, logger: trioperator.Logger) -> None:
    logger.info("The field has changed from %s to %s.", old, new)


@trioperator.on.update("kopfexamples", field="spec.field", new=trioperator.ABSENT)
def by_removal(old: str, logger: trioperator.Logger) -> None:
    logger.info("The field was removed; it was %s.", old)
