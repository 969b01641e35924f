#include "cli/quality/built_in_text.h"

namespace invar {

std::string_view built_in_text() {
  return R"(The ferry left the harbour an hour late. Mara stood at the rail with her collar turned up and counted the
lights along the shore until the last of them went under the fog. She had promised her brother that she would bring the
clock back in one piece, and now it ticked inside her bag, wrapped in two sweaters, a little too loud for something so
small. An old man beside her nodded at it. "You have someone waiting," he said. It was not a question. She thought about
it for a while before she answered. "My brother. He repairs them. This one stopped on the day our father bought it, and
nobody has been able to tell us why." The old man laughed, and the wind took most of the sound away.

Water boils when the pressure of its vapour reaches the pressure of the air above it. At sea level that happens at one
hundred degrees Celsius; on a mountain of three thousand metres the air is thinner, and ninety degrees are enough. For this
reason potatoes take longer to cook in a hut near the summit than in a kitchen in the valley: the water boils, but it is
not as hot. A closed pot with a valve does the opposite. The steam cannot leave, the pressure rises, and with it the
temperature at which the water boils, so that food is done in less than half the time.

Question: A train leaves at 9:40 and arrives at 13:05. How long does it take?
Answer: From 9:40 to 12:40 there are three hours, and from 12:40 to 13:05 another 25 minutes. The journey takes 3 hours
and 25 minutes.

def moving_average(values, width):
    """Means of `width` neighbours; the result is shorter by width - 1."""
    if width < 1 or width > len(values):
        raise ValueError("width must lie between 1 and %d" % len(values))
    total = sum(values[:width])
    means = [total / width]
    for old, new in zip(values, values[width:]):
        total += new - old
        means.append(total / width)
    return means

| planet  | radius (km) | day (hours) | moons |
|---------|-------------|-------------|-------|
| Mars    | 3390        | 24.6        | 2     |
| Jupiter | 69911       | 9.9         | 95    |

Am Morgen nach dem Sturm lagen die Boote kreuz und quer am Strand, und niemand wusste, welches wem gehörte. Le boulanger
ouvrit sa porte plus tôt que d'habitude et distribua du pain à tous ceux qui aidaient. Al mediodía ya solo quedaba una
barca sin dueño, pintada de azul, con un nombre que nadie supo leer. Вечером её вытащили на берег и накрыли старым
парусом.

"Did you water the plants?" "Which ones?" "The ones on the balcony. I left a note." "I thought the note was about the
cat." "The cat does not need two litres twice a week, Tom." He looked at the ceiling. "That explains a good deal," he said.
)";
}

}  // namespace invar
