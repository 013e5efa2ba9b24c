from jddl.compressors.identity import identity as identity
from jddl.compressors.int8 import int8 as int8
from jddl.compressors.topk import topk as topk
