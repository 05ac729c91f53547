"""An upload of which the server learns nothing but the sum over devices: double masking after Bonawitz et al. (CCS 2017).

A device adds two kinds of masks to its upload, in the integers modulo ``2^64``: one mask per peer, on which both agree by a key
exchange and which one adds and the other subtracts, so that it cancels in the sum; and a self mask of its own.
Five phases, each one request of the server and one reply of every device that is still there:

1. *keys*: a device announces public keys and a commitment, signed with its identity key.
2. *shares*: it splits the secrets behind both kinds of masks among all participants (Shamir), encrypted for each.
3. *masked*: it sends its masked upload.
4. *agree*: told who survived, it signs whose shares it received and who survived, once.
5. *unmask*: shown enough signatures over the same as it signed itself, it returns shares of the survivors' self masks and of the
   pairwise secrets of those that dropped out, never both of one device.

With enough shares of each, the server removes what is left of the masks from the sum. `Masker` is the device's part,
`MaskedSum` the server's, and `MaskingTerms` what both agree on beforehand, with the argument why a server that lies learns no
more. Neither part sends or stores anything itself: whoever calls them keeps `DeviceState` and the record of the sum.
"""

from codedfl.federation.masking._device import Masker
from codedfl.federation.masking._server import MaskedSum
from codedfl.federation.masking._state import DeviceState
from codedfl.federation.masking._terms import MaskingTerms, default_threshold

__all__ = ["DeviceState", "MaskedSum", "Masker", "MaskingTerms", "default_threshold"]
