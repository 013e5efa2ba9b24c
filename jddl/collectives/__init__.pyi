from jddl.collectives.direct import direct as direct
from jddl.collectives.native import native as native
from jddl.collectives.recursive_doubling import recursive_doubling as recursive_doubling
from jddl.collectives.ring import ring as ring
