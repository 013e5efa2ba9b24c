from jddl.tasks.digits import digits as digits
from jddl.tasks.least_squares import least_squares as least_squares
