from jddl.models.embedding_bag import embedding_bag as embedding_bag
from jddl.models.linear import linear as linear
from jddl.models.mlp import mlp as mlp
from jddl.models.moe_transformer import moe_transformer as moe_transformer
from jddl.models.resnet import resnet as resnet
from jddl.models.small_cnn import small_cnn as small_cnn
from jddl.models.transformer import transformer as transformer
