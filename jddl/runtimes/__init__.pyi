from jddl.runtimes.pmap import pmap as pmap
from jddl.runtimes.shard_map import shard_map as shard_map
from jddl.runtimes.vmap import vmap as vmap
