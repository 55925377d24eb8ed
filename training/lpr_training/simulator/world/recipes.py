"""Recipes: the parameters of each kind of world."""

from dataclasses import dataclass

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_training.simulator.geometry.materials import Material


@dataclass(frozen=True)
class Recipe(Config):
    """Parameters of a world; values are drawn uniformly from ranges."""

    layout: str = option('grid', 'Road layout, a key of roads.LAYOUTS')
    size_m: float = option(420.0, 'Side length of the world', unit='m', low=60.0, high=5000.0)
    block_m: float = option(105.0, 'Distance between junctions', unit='m', low=10.0)
    road_width_m: float = option(9.0, 'Width of the roads', unit='m', low=1.0)
    walk_m: float = option(2.2, 'Width of the sidewalks; 0 for none', unit='m', low=0.0)
    hills_m: float = option(1.0, 'Standard deviation of the height of hills', unit='m', low=0.0)
    hill_length_m: float = option(180.0, 'Wavelength of hills', unit='m', low=1.0)
    rough_m: float = option(
        0.03, 'Standard deviation of the off-road roughness', unit='m', low=0.0
    )
    soil: str = option('GRASS', 'Material of the ground', choices=tuple(m.name for m in Material))

    style: str = option('town', 'Style of the buildings: town, house, hall or none')
    front_m: tuple[float, float] = option((9.0, 24.0), 'Width of a building', unit='m')
    depth_m: tuple[float, float] = option((8.0, 16.0), 'Depth of a building', unit='m')
    floors: tuple[float, float] = option((2.0, 6.0), 'Number of floors')
    setback_m: tuple[float, float] = option(
        (0.0, 5.0), 'Distance from sidewalk to facade', unit='m'
    )
    gap_m: tuple[float, float] = option((0.0, 4.0), 'Gap between neighboring buildings', unit='m')
    opening: float = option(0.16, 'Fraction of lots left empty', low=0.0, high=1.0)
    wing: float = option(0.15, 'Fraction of buildings with a lower front wing', low=0.0, high=1.0)

    parking_m: float = option(6.5, 'Spacing of parking slots; 0 for none', unit='m', low=0.0)
    parked: float = option(0.6, 'Fraction of occupied parking slots', low=0.0, high=1.0)
    perpendicular: bool = option(False, 'Cars park perpendicular to the road')
    lamp_m: float = option(32.0, 'Spacing of lamp posts; 0 for none', unit='m', low=0.0)
    clutter_m: float = option(22.0, 'Spacing of signs and bins; 0 for none', unit='m', low=0.0)
    street_tree_m: float = option(16.0, 'Spacing of street trees; 0 for none', unit='m', low=0.0)
    tree_height_m: tuple[float, float] = option((5.0, 11.0), 'Height of trees', unit='m')
    conifers: float = option(0.15, 'Fraction of conifers', low=0.0, high=1.0)
    dead_wood: float = option(
        0.0, 'Fraction of dead trees, half of them fallen', low=0.0, high=1.0
    )
    trees_per_ha: float = option(25.0, 'Trees on open ground per hectare', low=0.0)
    bushes_per_ha: float = option(40.0, 'Bushes on open ground per hectare', low=0.0)
    halls: int = option(25, 'Number of large buildings away from the roads', low=0, high=200)
    traffic: float = option(1.0, 'Traffic density relative to traffic_per_km', low=0.0, high=10.0)
    fenced: bool = option(False, 'Hedge around the whole world')
    people_m: float = option(14.0, 'Spacing of pedestrians; 0 for none', unit='m', low=0.0)
    leaf_share: float = option(
        1.0, 'Leaf density of trees; 1 for a dense crown', low=0.0, high=4.0
    )
    wall: float = option(0.2, 'Fraction of lots with a fence, wall or hedge', low=0.0, high=1.0)


RECIPES: dict[str, Recipe] = {
    'city': Recipe(),
    'suburb': Recipe(
        layout='curved_grid', block_m=120.0, road_width_m=7.0, walk_m=1.6, hills_m=2.0,
        style='house', front_m=(8.0, 15.0), depth_m=(7.0, 12.0), floors=(1.0, 2.0),
        setback_m=(3.0, 9.0), gap_m=(3.0, 9.0), opening=0.15, wing=0.5, parking_m=8.0,
        parked=0.3, lamp_m=40.0, clutter_m=35.0, street_tree_m=22.0, tree_height_m=(4.0, 10.0),
        trees_per_ha=45.0, bushes_per_ha=120.0, halls=6, people_m=60.0, wall=0.5,
    ),
    'forest': Recipe(
        layout='trails', size_m=300.0, block_m=90.0, road_width_m=3.0, walk_m=0.0, hills_m=3.0,
        hill_length_m=70.0, rough_m=0.16, soil='SOIL', style='none', parking_m=0.0, lamp_m=0.0,
        clutter_m=0.0, street_tree_m=0.0, tree_height_m=(8.0, 20.0), conifers=0.4,
        trees_per_ha=450.0, bushes_per_ha=700.0, halls=0, people_m=0.0, leaf_share=0.3,
        wall=0.0, traffic=0.0, dead_wood=0.06,
    ),
    'campus': Recipe(
        layout='web', size_m=380.0, block_m=95.0, road_width_m=5.0, walk_m=1.5, hills_m=1.5,
        style='hall', front_m=(22.0, 55.0), depth_m=(14.0, 28.0), floors=(2.0, 7.0),
        setback_m=(4.0, 16.0), gap_m=(6.0, 25.0), opening=0.25, wing=0.4, parking_m=9.0,
        parked=0.15, lamp_m=22.0, clutter_m=30.0, street_tree_m=14.0, trees_per_ha=60.0,
        bushes_per_ha=60.0, halls=0, people_m=16.0, wall=0.1, traffic=0.4,
    ),
    'car_park': Recipe(
        layout='aisles', size_m=150.0, block_m=17.0, road_width_m=6.4, walk_m=0.0, hills_m=0.0,
        rough_m=0.0, soil='ASPHALT', style='none', parking_m=2.7, parked=0.7, perpendicular=True,
        lamp_m=27.0, clutter_m=0.0, street_tree_m=0.0, trees_per_ha=0.0, bushes_per_ha=0.0,
        halls=2, fenced=True, people_m=60.0, wall=0.0,
    ),
    'identical_houses': Recipe(
        layout='rows', size_m=500.0, block_m=62.0, road_width_m=7.0, walk_m=1.6, hills_m=0.0,
        rough_m=0.0, style='house', front_m=(9.0, 9.0), depth_m=(9.0, 9.0), floors=(2.0, 2.0),
        setback_m=(5.0, 5.0), gap_m=(5.0, 5.0), opening=0.0, wing=1.0, parking_m=14.0,
        parked=0.2, lamp_m=42.0, clutter_m=0.0, street_tree_m=0.0, trees_per_ha=0.0,
        bushes_per_ha=0.0, halls=0, people_m=0.0, wall=0.0,
    ),
}  # fmt: skip


def recipe_of(kind: str) -> Recipe:
    """Return the recipe of a kind of world."""
    if kind not in RECIPES:
        raise ConfigError(f'unknown world {kind!r}, expected one of {sorted(RECIPES)}')
    return RECIPES[kind]
