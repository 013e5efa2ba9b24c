from jddl.aggregators.compressed import compressed as compressed
from jddl.aggregators.error_feedback import error_feedback as error_feedback
from jddl.aggregators.mean import mean as mean
