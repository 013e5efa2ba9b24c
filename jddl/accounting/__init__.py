"""What a step sends, receives and computes, read off its program; imports no collective.

`measure` walks the traced program (a jaxpr: no devices needed), `measure_hlo` the compiled one.
Both give a `Measurement`, and for the same program their bytes are equal.
"""

from jddl.accounting._hlo import measure_hlo as measure_hlo
from jddl.accounting._jaxpr import measure as measure
from jddl.accounting._marks import exchange as exchange
from jddl.accounting._marks import payload as payload
from jddl.accounting._record import Measurement as Measurement
from jddl.accounting._record import Operation as Operation
from jddl.accounting._widening import widened_on_cpu as widened_on_cpu
