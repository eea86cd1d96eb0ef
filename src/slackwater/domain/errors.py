"""Every error this project raises on purpose, in one tree.

::

    SlackwaterError
    ├── RequestRefused            the caller's fault; `param` names the field, `code` is the API's code
    │   ├── BadRequest                400
    │   ├── Unauthorized              401
    │   ├── Forbidden                 403
    │   ├── NotFound                  404
    │   ├── StateConflict             409, never worth a retry
    │   └── TooLarge                  413
    ├── Unavailable               nobody's fault; the same call may go through later (503)
    │   ├── StoreUnavailable          the object store did not answer as it should
    │   │   └── StoreFull                 it has no room for what is written (507)
    │   └── DatabaseUnavailable       PostgreSQL did not
    ├── ObjectMissing             an object that a row points at is not in the store
    │   └── ObjectDamaged             it is there, and its bytes are not those that were written
    ├── EngineError               the engine gave no usable answer to a request
    │   ├── EngineUnreachable         no connection, or it broke before the whole answer was here
    │   │   └── EngineBroke               it broke with the request sent: the engine may have died of it
    │   ├── EngineTimeout             no whole answer in time
    │   ├── EngineWrongModel          the answer is another model's
    │   └── EngineReplyTooLarge       the answer is over the size limit: the same request would give it again
    ├── LeaseLost                 this claim or lease is no longer ours: stop, write nothing
    └── SetupError                the machine or the settings do not allow what was asked

``str(error)`` is safe to show a tenant and says what to do. HTTP statuses are given in ``api/errors.py`` alone.
"""


class SlackwaterError(Exception):
    """Root of all errors raised on purpose."""


class RequestRefused(SlackwaterError):
    """The caller asked for something that cannot be: repeating the call unchanged is useless."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class BadRequest(RequestRefused):
    """A value is missing, malformed or out of range."""


class Unauthorized(RequestRefused):
    """No key, or one that is unknown, revoked or expired."""


class Forbidden(RequestRefused):
    """The key is known but its role does not allow this."""


class NotFound(RequestRefused):
    """No such thing for this tenant; another tenant's thing reads the same."""


class StateConflict(RequestRefused):
    """The thing is in a state that does not allow this, and will not leave it by waiting."""


class TooLarge(RequestRefused):
    """The body is over a limit; the message states the limit and what came."""


class Unavailable(SlackwaterError):
    """A part of the service does not answer now; the same call may go through later."""


class StoreUnavailable(Unavailable):
    """The object store did not answer as it should."""


class StoreFull(StoreUnavailable):
    """The object store has no room left; the same call goes through once somebody has made some."""


class DatabaseUnavailable(Unavailable):
    """PostgreSQL did not answer as it should."""


class ObjectMissing(SlackwaterError):
    """An object that a row points at is not in the store."""


class ObjectDamaged(ObjectMissing):
    """An object that a row points at does not hold the bytes that were written: as good as missing."""


class EngineError(SlackwaterError):
    """The engine gave no usable answer to one request."""


class EngineUnreachable(EngineError):
    """No connection to the engine, or it broke before the whole answer was here."""


class EngineBroke(EngineUnreachable):
    """The connection broke after the request was sent and before its whole answer was here."""


class EngineTimeout(EngineError):
    """The engine gave no whole answer in time."""


class EngineWrongModel(EngineError):
    """The engine says that another model has answered than the one it was asked for."""


class EngineReplyTooLarge(EngineError):
    """The engine's answer is over the size limit; the message states the limit."""


class LeaseLost(SlackwaterError):
    """The claim or lease that was held is no longer ours: stop, and write nothing."""


class SetupError(SlackwaterError):
    """The machine or the settings do not allow what was asked; the message says what to change."""
