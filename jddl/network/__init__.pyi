from jddl.network.cluster import cluster as cluster
from jddl.network.ethernet import ethernet as ethernet
