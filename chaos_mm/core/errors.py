"""Everything chaos_mm raises on purpose.

    ChaosMMError                 500  something of ours is wrong
    ├── BadRequest               400  not JSON, not an object, a field of the wrong type
    │   └── InvalidParams        422  a fault's parameter, a blast radius or a duration is out of bounds
    ├── Unauthorized             401  no token, or a wrong one
    ├── Forbidden                403  this point does not allow it (live traffic, rate, Host, Origin)
    ├── UnknownFault             404  no such fault in the catalogue
    ├── UnknownLease             404  no such lease at this point
    ├── NotInjectable            409  the fault exists, but not at this point
    ├── OwnedByAnother           409  another run holds the point
    ├── LeaseConflict            409  a lease of that name lives with another body
    ├── TooLarge                 413  a control request above the limit
    ├── Stopped                  423  the stop latch is set
    ├── MissingExtra             501  an optional part is not installed
    └── PointUnreachable         502  nobody answers, or not one of ours

``status`` is the HTTP status at the control API, ``kind`` the word in its JSON; the client turns both back
into the same class, so a caller sees one tree on either side of the wire.
"""


class ChaosMMError(Exception):
    """Base of the tree; its text must stand alone, since callers show only that."""

    status = 500
    kind = "error"


class BadRequest(ChaosMMError):
    """The request is not what the control API takes."""

    status = 400
    kind = "bad_request"


class InvalidParams(BadRequest):
    """A parameter is unknown, of the wrong type, or outside its range."""

    status = 422
    kind = "invalid_params"


class Unauthorized(ChaosMMError):
    """The bearer token is missing or wrong."""

    status = 401
    kind = "unauthorized"


class Forbidden(ChaosMMError):
    """The point was started without the permission that this needs."""

    status = 403
    kind = "forbidden"


class UnknownFault(ChaosMMError):
    """The catalogue has no fault of that name."""

    status = 404
    kind = "unknown_fault"


class UnknownLease(ChaosMMError):
    """The point knows no lease of that name."""

    status = 404
    kind = "unknown_lease"


class NotFound(ChaosMMError):
    """No such path at the control API."""

    status = 404
    kind = "not_found"


class NotInjectable(ChaosMMError):
    """The fault cannot be injected at this point."""

    status = 409
    kind = "not_injectable"


class OwnedByAnother(ChaosMMError):
    """The point serves another owner, or the lease is another's."""

    status = 409
    kind = "owned_by_another"


class LeaseConflict(ChaosMMError):
    """A live lease of that name and owner has another body."""

    status = 409
    kind = "lease_conflict"


class TooLarge(ChaosMMError):
    """A control request above the size limit."""

    status = 413
    kind = "too_large"


class Stopped(ChaosMMError):
    """The point was stopped by hand; ``chaos-mm stop --clear`` lifts it."""

    status = 423
    kind = "stopped"


class MissingExtra(ChaosMMError):
    """An optional dependency is missing."""

    status = 501
    kind = "missing_extra"

    @classmethod
    def of(cls, module: str, extra: str) -> "MissingExtra":
        """The error for a module that comes with an extra."""
        return cls(f"{module} is not installed; pip install 'chaostoolkit-multimodal[{extra}]'")


class PointUnreachable(ChaosMMError):
    """No injection point answers at that address."""

    status = 502
    kind = "point_unreachable"


def by_kind() -> dict[str, type[ChaosMMError]]:
    """Every class of the tree by its ``kind``, for the client."""
    found: dict[str, type[ChaosMMError]] = {}
    queue: list[type[ChaosMMError]] = [ChaosMMError]
    while queue:
        cls = queue.pop()
        found.setdefault(cls.kind, cls)
        queue.extend(cls.__subclasses__())
    return found
