"""Bytes, rounds and FLOPs, read off the traced or compiled program; imports no collective."""

from jddl.accounting._hlo import measure_hlo as measure_hlo
from jddl.accounting._jaxpr import measure as measure
from jddl.accounting._marks import exchange as exchange
from jddl.accounting._marks import payload as payload
from jddl.accounting._record import Measurement as Measurement
from jddl.accounting._record import Operation as Operation
