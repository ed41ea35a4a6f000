-- Import, index, join, group, window and update orders, in a file that is never synchronised:
-- the disk is not what this is about. Sums of integers, so that every version says the same.
pragma journal_mode = off;
pragma synchronous = off;
create table "order" (
    id integer primary key, day text, customer integer, city text, product text,
    quantity integer, cents integer, note text
);
.mode csv
.import orders.csv order
.mode list
create index order_product on "order" (product, day);
create index order_customer on "order" (customer);
create table city as select city as name, count(*) as orders from "order" group by city;

select count(*), sum(quantity), sum(quantity * cents) from "order";
select city, substr(day, 1, 7) as month, sum(quantity * cents) as sold
from "order" group by city, month order by sold desc, city, month limit 3;
select count(*), sum(o.quantity)
from "order" as o join city on city.name = o.city
where city.orders % 2 = 0 and o.note like '%ou%la%';
select sum(place * cents % 1009) from (
    select cents, row_number() over (partition by product order by day, id) as place from "order"
);
select count(*) from (
    select a.customer from "order" as a join "order" as b
    on a.customer = b.customer and a.product = b.product and a.id < b.id
    group by a.customer having count(*) > 1
);
update "order" set cents = cents + 1 where product in (
    select product from "order" group by product having count(*) > 300
);
delete from "order" where id % 3 = 0;
select count(*), sum(cents), count(distinct product), max(note) from "order";
