"""A pair of engines, small and right: one computes prompts, the other one generates, and KV is read over a wire.

`engine` is a scheduler with a pool of blocks and a prefix cache (`pool`); both sides are one. `offers` is what the side
that computes prompts does for readers, and `claims` what the reader does. What makes it right:

- An offer holds its blocks until its reader is done, or its lease is over. Nobody asks whether the reader still reads:
  a one-sided read cannot be seen.
- So the reader counts nothing that it sees arrived at or after the end of the lease that it knows. It asks for more
  time by beats, and believes only the answers.
- The blocks of a claim are in no cache and in no other table until all has arrived. If its user leaves meanwhile, they
  stay held until the transfer has ended.
- A side that has died is another one, though its address is the same: a ticket says of which generation it is, and a
  transfer goes only to the side with which the last handshake was made.
- Every message may come twice, late or never: each says all that it means, and what it is about may be over.
"""

from kvproof.impl.pair.engine import Engine as Engine
from kvproof.impl.pair.engine import PairRequest as PairRequest
from kvproof.impl.pair.offers import Ticket as Ticket
from kvproof.impl.pair.transport import Transport as Transport
