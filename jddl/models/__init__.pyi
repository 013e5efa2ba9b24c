from jddl.models.embedding_bag import embedding_bag as embedding_bag
from jddl.models.linear import linear as linear
from jddl.models.lstm import lstm as lstm
from jddl.models.mlp import mlp as mlp
from jddl.models.resnet import resnet as resnet
from jddl.models.small_cnn import small_cnn as small_cnn
from jddl.models.vit import vit as vit
